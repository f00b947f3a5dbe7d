"""Tests of loops that carry a list only to add items to it."""

import pytest
import torch
from torch import Tensor

import fx_onnx
from fx_onnx.capture.torchscript.script_graph import GraphReader
from fx_onnx.core.errors import CaptureError
from tests.capture.torchscript.agreement import agree

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
    operations = GraphReader(lambda constant: constant).read(function_with_loop(body).graph).operations
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
