"""A graph runs in float64."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fx_onnx.verification.first_difference import value_in_double


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
    result = value_in_double(program.graph_module, [weight, torch.zeros(1)])[0]
    assert result.dtype == torch.float64 and result.item() == 2.0
    assert weight.dtype == torch.float16
    assert Cancels()(torch.zeros(1)).item() == 1.0  # float16 has no 2049
    assert program.module()(torch.zeros(1)).item() == 1.0  # the program itself did not change
