"""Weights of torchao that are tensors of a class: the bits of NVFP4 stay, and the results are those of torchao."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import fx_onnx
from fx_onnx.messages.errors import OnnxExporterError


def quantized(*layers: nn.Module, **options: Any) -> nn.Module:
    formats = pytest.importorskip("torchao.prototype.mx_formats")
    from torchao.quantization import quantize_

    model = nn.Sequential(*layers).eval()
    quantize_(model, formats.NVFP4WeightOnlyConfig(**options))
    return model


@pytest.mark.parametrize("opset", [19, 21, 25])
@pytest.mark.parametrize("sizes", [(64, 32), (96, 144), (144, 320)])
@pytest.mark.parametrize("has_scale", [True, False])
def test_nvfp4(opset: int, sizes: tuple[int, int], has_scale: bool) -> None:
    """The scales are stored in tiles, which no size here fills."""
    model = quantized(
        nn.Linear(*sizes), nn.ReLU(), nn.Linear(sizes[1], 16, bias=False), use_dynamic_per_tensor_scale=has_scale
    )
    rows = torch.randn(4, sizes[0])
    program = fx_onnx.export(model, (rows,), dynamic_shapes=({0: "batch"},), opset_version=opset)
    more = torch.randn(7, sizes[0])
    torch.testing.assert_close(program(more)[0], model(more), rtol=1e-5, atol=1e-5)
    weights = program.model.graph.initializers.values()
    numbers = sizes[0] * sizes[1] + sizes[1] * 16
    largest = 0.7 if opset >= 21 else 1.2
    assert sum(value.const_value.nbytes for value in weights) < largest * numbers + 4 * sizes[1] + 200
    assert type(model[0].weight).__torch_function__ is torch._C._disabled_torch_function_impl


def test_refused() -> None:
    """FP8 is no dtype of opset 18."""
    with pytest.raises(OnnxExporterError, match="from opset 19 on"):
        fx_onnx.export(quantized(nn.Linear(64, 32)), (torch.randn(4, 64),), opset_version=18)
