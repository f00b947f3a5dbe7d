"""``resize_`` and ``resize_as_``: views where the elements of the result are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import fx_onnx
from fx_onnx.messages.errors import MutationError, UnsupportedOperatorError
from tests.aten.functional_check import check
from tests.modules import FunctionModule

X = torch.randn(4, 6)


def as_many(x: Tensor) -> Tensor:
    return x.clone().resize_(3, 8)


def fewer(x: Tensor) -> Tensor:
    return x.clone().resize_(2, 5)


def like(x: Tensor) -> Tensor:
    return x.clone().resize_as_(x.t())


def written_later(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.clone()
    flat = y.view(-1)
    y.resize_(3, 8)[0] = 7
    return flat * 2, y


def written_through_another_view(x: Tensor) -> Tensor:
    y = x.clone()
    flat = y.view(-1)
    y.resize_(3, 8)
    flat[1:3] = 7
    return y


def squeezed_then_written_through_another_view(x: Tensor) -> Tensor:
    y = x.clone()
    flat = y.view(-1)
    y.unsqueeze_(0)
    flat[1:3] = 7
    return y


def from_nothing(x: Tensor) -> Tensor:
    y = x.data.new()
    y.resize_(x.shape[0], 3).fill_(2)
    y[0] = 5
    return y + x[:, :3]


def from_nothing_like(x: Tensor) -> Tensor:
    return torch.empty(0, dtype=torch.int64).resize_as_(x).fill_(3) * x


def result_into_nothing(x: Tensor) -> Tensor:
    y = torch.empty(0)
    torch.add(x, 1, out=y.resize_(x.shape))
    return y * x


@pytest.mark.parametrize(
    "function",
    [
        from_nothing,
        from_nothing_like,
        result_into_nothing,
        as_many,
        fewer,
        like,
        written_later,
        written_through_another_view,
        squeezed_then_written_through_another_view,
    ],
)
def test_views(function: Callable[..., Any]) -> None:
    program = check(FunctionModule(function), X)
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert not [target for target in targets if target._schema.is_mutable or "resize" in str(target)]


@pytest.mark.parametrize("function", [lambda x: x.clone().resize_(x.shape[1], x.shape[0]), from_nothing])
def test_dynamic_sizes(function: Callable[..., Any]) -> None:
    module = FunctionModule(function).eval()
    program = fx_onnx.export(module, (X,), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},))
    for x in (X, torch.randn(2, 9)):
        assert torch.equal(program(x)[0], module(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.clone().resize_(5, 6),
        lambda x: x.t().clone(memory_format=torch.preserve_format).resize_(4, 6),
        lambda x: x.resize_(3, 8) * 2,
    ],
    ids=["more elements than memory", "not contiguous", "the shape of an input"],
)
def test_what_the_memory_decides_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedOperatorError, match=r"aten\.resize\.default"):
        fx_onnx.export(FunctionModule(function).eval(), (X,))


def test_a_write_to_a_smaller_result_is_refused() -> None:
    with pytest.raises(MutationError, match="does not have each element once"):
        fx_onnx.export(FunctionModule(lambda x: x.clone().resize_(2, 5).add_(1)).eval(), (X,))
