"""The merged model has each call once, and an If for each condition at which paths differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fx_onnx.passes.traversal import all_nodes
from tests.data_branches.branching_modules import MIXED, POSITIVE, Branching, check, export, operators


def branch_in_the_middle(m: Any, x: Tensor) -> Tensor:
    y = m.a(x)
    y = y.relu() if x.sum() > 0 else y.tanh()
    return m.b(y).softmax(-1) + x


def two_branches(m: Any, x: Tensor) -> Tensor:
    y = x.relu() if x.sum() > 0 else x.tanh()
    return m.b(y).exp() if x.amax() > 0.5 else m.a(y).sqrt()


def three_branches(m: Any, x: Tensor) -> Tensor:
    for i in range(3):
        x = x.sin() if x[i, 0] > 0 else x.cos()
    return x.exp()


def equal_branches(m: Any, x: Tensor) -> Tensor:
    y = x.sin()
    return y + 1 if x.sum() > 0 else 1 + x.sin()


def loop_before_the_branch(m: Any, x: Tensor) -> Tensor:
    y = torch.cond(x.sum() > 1, lambda x: x.sin(), lambda x: x.cos(), (x,))
    return y.exp() if y.sum() > 0 else y.tanh()


@pytest.mark.parametrize(
    ("function", "ops", "inner"),
    [
        (branch_in_the_middle, {"If": 1, "Gemm": 2, "Softmax": 1, "Relu": 1, "Tanh": 1}, {"Relu", "Tanh"}),
        (two_branches, {"If": 2, "Gemm": 2, "Relu": 1, "Tanh": 1}, {"Relu", "Tanh", "Gemm", "Exp", "Sqrt"}),
        (three_branches, {"If": 3, "Sin": 3, "Cos": 3, "Exp": 1}, {"Sin", "Cos"}),
        (equal_branches, {"Sin": 1, "If": 0}, set()),
        (loop_before_the_branch, {"If": 2, "Sin": 1, "Cos": 1}, {"Sin", "Cos", "Exp", "Tanh"}),
    ],
)
def test_each_call_stands_once(function: Callable[..., Any], ops: dict[str, int], inner: set[str]) -> None:
    program = export(function, dynamic=True)
    found = Counter(node.op_type for node in all_nodes(program.model.graph))
    assert {name: found[name] for name in ops} == ops
    assert {*found} - {*operators(program.model.graph)} == inner
    check(program, function)


@pytest.mark.parametrize("arguments", [{"optimize": False}, {"opset_version": 15}, {"opset_version": 23}])
def test_other_options(arguments: dict[str, Any]) -> None:
    program = export(two_branches, verify=True, **arguments)
    check(program, two_branches)


def test_weights_are_shared_and_keep_their_names() -> None:
    def function(m: Any, x: Tensor) -> Tensor:
        return m.a(x) if x.sum() > 0 else m.b(m.a(x) + 1)

    program = export(function)
    assert {*program.model.graph.initializers} >= {"a.weight", "a.bias", "b.weight", "b.bias"}
    module = Branching(function).eval()
    program.apply_weights({name: 2 * value for name, value in module.state_dict().items()})
    for value in module.parameters():
        value.data *= 2
    for x in (POSITIVE, MIXED):
        torch.testing.assert_close(program(x)[0], module(x))


def test_a_size_that_differs_is_a_dim_of_its_own() -> None:
    def function(m: Any, x: Tensor) -> Tensor:
        return x[:2] if x.sum() > 0 else x

    program = export(function)
    dim, width = program.model.graph.outputs[0].shape
    assert not isinstance(dim, int) and width == 4
    check(program, function)


def test_a_random_condition_is_drawn_once() -> None:
    def function(m: Any, x: Tensor) -> Any:
        noise = torch.rand(1)
        return (noise, x + 1) if noise.sum() > 0.5 else (noise, x)

    program = export(function)
    for _ in range(20):
        noise, y = program(POSITIVE)
        assert torch.equal(y, POSITIVE + 1) is bool(noise > 0.5)
