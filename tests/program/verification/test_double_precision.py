"""A graph runs in float64, and the nearer of two values is told."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from fx_onnx.program.verification.double_precision import errors_in_double, run_in_double, widened_module


class Cancels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0], dtype=torch.float16))

    def forward(self, x: Tensor) -> Tensor:
        ones = torch.ones(1, dtype=torch.float16)
        return ((x.to(torch.float16) + 2048) + self.weight) - 2048 + ones


def test_a_half_precision_graph_runs_in_float64() -> None:
    program = torch.export.export(Cancels(), (torch.zeros(1),))
    weight = program.state_dict["weight"]
    result = run_in_double(widened_module(program.graph_module), [weight, torch.zeros(1)])[0]
    assert result.dtype == torch.float64 and result.item() == 2.0
    assert weight.dtype == torch.float16
    assert Cancels()(torch.zeros(1)).item() == 1.0  # float16 has no 2049
    assert program.module()(torch.zeros(1)).item() == 1.0  # the program itself did not change


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("eager", "onnx", "exact", "errors"),
    [
        ([1.0, 2.5], [1.0, 2.25], [1.0, 2.0], (0.5, 0.25)),
        ([1.0, 2.25], [1.5, 2.0], [1.0, 2.0], (0.25, 0.5)),
        ([INF, 2.0], [7.0, 2.5], [7.0, 2.0], (0.0, 0.5)),  # infinite in PyTorch, where float64 is not
        ([7.0, 2.0], [NAN, 2.0], [7.0, 2.0], (0.0, INF)),
        ([NAN], [0.0], [NAN], (0.0, INF)),
        ([INF, 1.0], [INF, 1.5], [INF, 1.0], (0.0, 0.5)),
        ([[1.0]], [1.0], [1.0], (0.0, INF)),  # another shape
    ],
)
def test_errors(eager: list[float], onnx: list[float], exact: list[float], errors: tuple[float, float]) -> None:
    assert errors_in_double(torch.tensor(eager), torch.tensor(onnx), torch.tensor(exact).double()) == errors


def test_the_error_of_integers_is_how_many_differ() -> None:
    eager, onnx, exact = torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 9, 4]), torch.tensor([1, 5, 9, 4])
    assert errors_in_double(eager, onnx, exact) == (2.0, 1.0)
