"""The number in a 0-d tensor of sizes stays an expression of the sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import fx_onnx


class Model(torch.nn.Module):
    """Calls a function with the input and its length."""

    def __init__(self, function: Callable[[Tensor, int], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, x.shape[0])


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: x.view(torch.div(n, 4, rounding_mode="trunc"), 4),  # type: ignore[call-overload]
        lambda x, n: x.view(torch.tensor(n) // 4, 4),
        lambda x, n: x.view(torch.as_tensor(n).to(torch.int64).floor_divide(4).item(), 4),
        lambda x, n: x.view((torch.maximum(torch.tensor(n), torch.tensor(n)) - 4 + 4).div(4, rounding_mode="floor"), 4),
        lambda x, n: x.view(n // 4, -(-4 * torch.tensor(n)) // torch.tensor(n)),
    ],
)
def test_a_size_from_a_tensor_is_an_expression(function: Callable[[Tensor, int], Tensor]) -> None:
    """The condition is told, and a later condition on the result can be decided."""

    def decided(x: Tensor, n: int) -> Tensor:
        y = function(x, n)
        return y * 2 if y.shape[0] * 4 == n else y

    program = fx_onnx.export(Model(decided), (torch.randn(12),), dynamic_shapes=({0: "n"},))
    assert "a multiple of 4" in str(program.dims)
    x = torch.randn(20)
    torch.testing.assert_close(program(x)[0], 2 * x.view(5, 4))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: x[: torch.div(3 - n, 4, rounding_mode="trunc")],  # type: ignore[call-overload]
        lambda x, n: x[: torch.tensor(n).add_(-5) // 2],
        lambda x, n: x[: (torch.tensor(n) / 4).ceil().long()],
        lambda x, n: x[: torch.tensor(n, dtype=torch.int32) - 3],
        lambda x, n: x[: torch.tensor(n).sub(1, alpha=2)],
    ],
)
def test_other_numbers_are_computed_when_the_model_runs(function: Callable[[Tensor, int], Tensor]) -> None:
    program = fx_onnx.export(Model(function), (torch.randn(12),), dynamic_shapes=({0: "n"},))
    for n in (8, 9, 14):
        x = torch.randn(n)
        torch.testing.assert_close(program(x)[0], function(x, n))
