"""Compressed layers of compressed-tensors, against the weights as the library decompresses them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.nn.functional import linear

import fx_onnx
from fx_onnx.quantized_weights.packed_loading import load_packed
from tests.compare import assert_close
from tests.models.packed_checkpoints import compressed

LAYERS: dict[str, tuple[dict[str, Any], str]] = {
    "4 bits": ({"form": "pack-quantized"}, "INT4"),
    "4 bits, zeros": ({"form": "pack-quantized", "asymmetric": True}, "INT4"),
    "3 bits": ({"form": "pack-quantized", "bits": 3, "asymmetric": True}, "INT4"),
    "8 bits, rows": ({"form": "pack-quantized", "bits": 8, "strategy": "channel"}, "INT8"),
    "int8": ({"form": "int-quantized", "strategy": "channel"}, "INT8"),
    "float8": ({"form": "float-quantized", "strategy": "tensor"}, "FLOAT8E4M3FN"),
    "float8, blocks": ({"form": "float-quantized", "strategy": "block"}, "FLOAT8E4M3FN"),
    "float4": ({"form": "nvfp4-pack-quantized"}, "UINT4"),
}


@pytest.mark.parametrize("opset", [21, 23, 25])
@pytest.mark.parametrize("name", LAYERS)
def test_a_compressed_layer(name: str, opset: int) -> None:
    given, dtype = LAYERS[name]
    layer, x = compressed(**given), torch.randn(3, 64)
    program = fx_onnx.export(layer.eval(), (x,), opset_version=opset, verbose=False)
    assert_close(program(x)[0], linear(x, layer.expected), 1e-5)
    weights = [value for value in program.model.graph.initializers.values() if value.const_value.size == 12 * 64]
    assert [value.dtype.name for value in weights] == [dtype]
    assert "forward" not in vars(layer)


def test_a_loaded_model_stays_compressed() -> None:
    """Tests that the hook of the library, which decompresses all weights in the first run, is gone."""
    layer, x = compressed("pack-quantized"), torch.randn(3, 64)
    model = torch.nn.Sequential(layer)
    model.ct_decompress_hook = model.register_forward_pre_hook(lambda *_: pytest.fail("it decompresses"))
    loaded = load_packed(lambda: model)
    assert_close(copy.deepcopy(loaded)(x), linear(x, layer.expected), 1e-5)
    program = fx_onnx.export(loaded.eval(), (x,), opset_version=21, verify=True, verbose=False)
    assert "INT4" in {value.dtype.name for value in program.model.graph.initializers.values()}


@pytest.mark.parametrize("form", ["mxfp6-pack-quantized", "marlin-24"])
def test_another_format_is_refused_by_name(form: str) -> None:
    layer = compressed("int-quantized", strategy="channel")
    layer.quantization_scheme.format.value = form
    with pytest.raises(fx_onnx.OnnxExporterError, match=f"a weight in the format {form} of compressed-tensors"):
        fx_onnx.export(layer.eval(), (torch.randn(3, 64),), verbose=False)
