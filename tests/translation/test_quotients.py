"""Quotients of numbers that are read from data stay in range."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fx_onnx


class _Read(torch.nn.Module):
    """Computes with two numbers that are read from tensors."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.new_full((1,), self.function(x.item(), y.item()))


@pytest.mark.parametrize(
    "function",
    [lambda a, b: a // b, lambda a, b: a % b, lambda a, b: (a // b) % b, lambda a, b: a // -b, lambda a, b: a % -1],
)
def test_numbers_of_data_in_quotients(function: Callable[[int, int], int]) -> None:
    """ONNX Runtime ends the process where it divides the lowest number by -1; here the quotient wraps."""
    program = fx_onnx.export(_Read(function), (torch.tensor(7), torch.tensor(3)))
    for a, b in ((-(2**63), -1), (-(2**63), 1), (-(2**63), 2), (-(2**63), -2), (7, -1), (-7, -1), (-7, 2), (7, -2)):
        (found,) = program(torch.tensor(a), torch.tensor(b))
        assert (int(found) - function(a, b)) % 2**64 == 0, (a, b)
