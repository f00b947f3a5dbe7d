"""Gradients that would stay in a weight are refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import fx_onnx


def test_a_gradient_of_a_weight_is_refused() -> None:
    class Trains(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            self.linear(x).sum().backward()
            return self.linear.weight.grad

    with pytest.raises(fx_onnx.CaptureError, match=r"in the weight 'linear.weight', .*py:"):
        fx_onnx.export(Trains().eval(), (torch.randn(3, 4),))
