"""Tests of lists to which a loop has appended: the operators on them compute what they compute on the plain list."""

from types import SimpleNamespace

import pytest
import torch

from fx_onnx.capture.torchscript.grown_list import Appended, has_appended, is_only_appended_to, on_grown_list
from fx_onnx.capture.torchscript.script_graph import GraphReader
from fx_onnx.core.errors import CaptureError

ROWS = torch.randn(3, 2, 4)
FIRST = torch.randn(2, 4)
GROWN, PLAIN = [FIRST, Appended(ROWS), FIRST], [FIRST, *ROWS, FIRST]


def call(kind, *arguments):
    return on_grown_list(SimpleNamespace(kind=kind, source=" (a.py:1)"), arguments)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_stack_and_cat(dim):
    assert call("aten::stack", GROWN, dim).equal(torch.stack(PLAIN, dim))
    assert call("aten::cat", GROWN, dim).equal(torch.cat(PLAIN, dim))


def test_length_and_items():
    assert has_appended(GROWN)
    assert not has_appended(PLAIN)
    assert call("aten::len", GROWN) == 5
    assert call("aten::__getitem__", GROWN, 0) is FIRST
    assert call("aten::__getitem__", GROWN, -1) is FIRST
    assert call("aten::__getitem__", [Appended(ROWS)], 2).equal(ROWS[2])
    for place in (1, 2, -2):
        with pytest.raises(CaptureError, match=r"An index of a list .* is not known \(a.py:1\)"):
            call("aten::__getitem__", GROWN, place)


def test_other_operators_are_refused():
    with pytest.raises(CaptureError, match="and aten::pop needs it"):
        call("aten::pop", GROWN)


@pytest.mark.parametrize(
    ("body", "only_appends"),
    [
        ("items.append(x)", True),
        ("items.append(x + i)\n        items.append(x)", True),
        ("items.append(items[-1])", False),
        ("items.append(x)\n        x = x + len(items)", False),
        ("if i > 1:\n            items.append(x)", False),
    ],
)
def test_a_body_that_only_appends(body, only_appends):
    code = f"def f(x: Tensor, items: List[Tensor]):\n    for i in range(3):\n        {body}\n    return x\n"
    block = GraphReader(lambda constant: constant).read(torch.jit.CompilationUnit(code).f.graph)
    loop = next(operation for operation in block.operations if operation.kind == "prim::Loop")
    assert is_only_appended_to(loop.blocks[0], {block.parameters[1]}) is only_appends
