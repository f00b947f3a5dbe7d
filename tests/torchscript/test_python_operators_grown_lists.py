"""Tests of lists to which a loop has appended: the operators on them compute what they compute on the plain list."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

import fx_onnx
from fx_onnx.messages.errors import CaptureError
from fx_onnx.torchscript.python_operators import has_appended, on_grown_list
from fx_onnx.torchscript.script_graph import GraphReader, is_only_appended_to
from fx_onnx.torchscript.script_values import Appended
from tests.torchscript.agreement import agree

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
        with pytest.raises(CaptureError, match=r"length of the list depends on data \(a.py:1\); select"):
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
    block = GraphReader(lambda name, tensor: tensor).read(torch.jit.CompilationUnit(code).f.graph)
    loop = next(operation for operation in block.operations if operation.kind == "prim::Loop")
    assert is_only_appended_to(loop.blocks[0], {block.parameters[1]}) is only_appends


X = torch.randn(3)


def function_with_loop(body):
    code = f"def f(x: Tensor, n: Tensor):\n    items = [x]\n    for i in range(int(n)):\n        {body}\n"
    return torch.jit.CompilationUnit(f"{code}    return items, torch.stack(items)\n").f


@pytest.mark.parametrize(
    ("body", "carried"),
    [
        ("items += [x * i]", 0),
        ("items = items + [x * i]", 0),
        ("items = [x] + items", 1),
        ("items += [x]\n        x = x + len(items)", 2),
        ("items += [x]\n        items += [x]", 1),
        ("x += x * i", 1),
    ],
)
def test_which_loops_are_rewritten(body, carried):
    operations = GraphReader(lambda name, tensor: tensor).read(function_with_loop(body).graph).operations
    (loop,) = [each for each in operations if each.kind == "prim::Loop"]
    assert len(loop.outputs) == len(loop.inputs) - 2 == len(loop.blocks[0].parameters) - 1 == carried


@torch.jit.script
def extends_one_list(x: Tensor, n: Tensor) -> tuple[Tensor, int]:
    items = [x]
    same = items
    for i in range(int(n)):
        items += [x * i]
    return torch.stack(items), len(same)


@torch.jit.script
def assigns_a_new_list(x: Tensor, n: Tensor) -> tuple[Tensor, int]:
    items = [x]
    same = items
    for i in range(int(n)):
        items = items + [x * i]  # noqa: RUF005
    return torch.stack(items), len(same)


@pytest.mark.parametrize("model", [extends_one_list, assigns_a_new_list])
def test_items_of_a_loop_on_data(model):
    program = fx_onnx.export(model, (X, torch.tensor(4)), verify=True)
    for count in (0, 1, 6):
        agree(model, program, X, torch.tensor(count))


@pytest.mark.parametrize("model", [extends_one_list, assigns_a_new_list])
def test_items_of_a_loop_of_known_length(model):
    known = torch.jit.CompilationUnit(
        "def f(x: Tensor):\n    items = [x]\n    same = items\n    for i in range(3):\n"
        f"        items {'+= ' if model is extends_one_list else '= items + '}[x * i]\n"
        "    return torch.stack(items), len(same)\n"
    ).f
    agree(known, fx_onnx.export(known, (X,)), X)


def test_two_items_an_iteration_are_refused():
    with pytest.raises(CaptureError, match="list or dict whose length depends on data"):
        fx_onnx.export(function_with_loop("items += [x]\n        items += [x]"), (X, torch.tensor(4)))
