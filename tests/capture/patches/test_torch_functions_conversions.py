"""A forward that converts a module to the device and dtype that it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx


class Converts(nn.Module):
    def __init__(self, convert: Callable[[nn.Module, Tensor], Any]) -> None:
        super().__init__()
        self.layers, self.convert = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), convert
        self.register_buffer("count", torch.tensor(2))

    def forward(self, x: Tensor) -> Any:
        self.convert(self, x)
        return self.layers(x) * self.count


@pytest.mark.parametrize(
    "convert",
    [
        lambda module, x: module.to(x.device),
        lambda module, x: module.layers[0].to(x.device, x.dtype),
        lambda module, x: module.float().cpu(),
        lambda module, x: module._apply(lambda tensor: tensor),
    ],
)
def test_nothing_changes(convert: Callable[[nn.Module, Tensor], Any]) -> None:
    model, shapes = Converts(convert).eval(), ({0: torch.export.Dim.DYNAMIC},)
    program = fx_onnx.export(model, (torch.randn(2, 3),), dynamic_shapes=shapes, verify=True)
    assert not program.findings
    assert not [node.op_type for node in program.model.graph if node.op_type in ("Cast", "Identity")]


@pytest.mark.parametrize("convert", [lambda module, x: module.double().float(), lambda module, x: module.half()])
def test_a_conversion_is_refused(convert: Callable[[nn.Module, Tensor], Any]) -> None:
    with pytest.raises(fx_onnx.OnnxExporterError):
        fx_onnx.export(Converts(convert).eval(), (torch.randn(2, 3),), verbose=False)
