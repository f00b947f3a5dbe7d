"""Tensor.data in the forward: reading it is detach(); assigning it is refused; nothing of it becomes a constant."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

import fx_onnx
from fx_onnx import CaptureError


class Reads(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3))
        self.register_buffer("count", torch.zeros(3))
        self.plain = torch.randn(3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.count.data.add_(1)
        return x.data + 1, (x * 2).data * self.weight.data, self.plain.data * self.count


class Assigns(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.data = self.count + 1
        return x + self.count


class Branches(torch.nn.Module):
    """Only strict mode traces the bytecode of this forward, and it loses ``x.data``."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_dynamo_compiling():
            return x.data + 1
        raise ValueError("the forward runs in strict mode only")


def test_reading_is_detaching() -> None:
    model, x = Reads().eval(), torch.randn(2, 3)
    program = fx_onnx.export(model, (x,), dynamic_shapes=({0: Dim.AUTO},))
    x = torch.randn(4, 3)
    results = program(x)
    for got, expected in zip(results, model(x), strict=False):
        torch.testing.assert_close(got, expected)
    assert results[-1].tolist() == [1, 1, 1]  # the new value of the buffer
    assert "data" not in vars(torch.Tensor)


def test_assigning_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"an assignment to Tensor.data cannot be captured; write tensor.copy_"):
        fx_onnx.export(Assigns().eval(), (torch.randn(3),))


def test_a_constant_without_values_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"a tensor that has no values .*return x.data \+ 1.*use detach\(\)"):
        fx_onnx.export(Branches().eval(), (torch.randn(3),))
