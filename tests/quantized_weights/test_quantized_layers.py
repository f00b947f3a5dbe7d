"""Replacements for the layers of quantized checkpoints, against the weights as the libraries dequantize them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

import fx_onnx
from fx_onnx.quantized_weights.weight_operators import FLOAT4_VALUES
from tests.compare import assert_close
from tests.models import packed_checkpoints as layers

LAYERS: dict[str, Callable[[], layers.Layer]] = {
    **{f"hqq of {bits} bits": lambda bits=bits: layers.hqq(bits) for bits in (8, 4, 3, 2, 1)},
    "hqq along rows": lambda: layers.hqq(4, 20, 0),
    "bitsandbytes": lambda: layers.bitsandbytes(64, False),
    "bitsandbytes, nested": lambda: layers.bitsandbytes(64, True),
    "bitsandbytes, blocks over two rows": lambda: layers.bitsandbytes(50, True),
    **{
        f"Model-Optimizer {kind}": lambda kind=kind: layers.model_optimizer(kind)
        for kind in ("nvfp4", "fp8", "int8", "int4")
    },
    **{f"quanto {kind}": lambda kind=kind: layers.quanto(kind) for kind in ("int8", "float8", "4 float", "4", "2")},
}


def exported(layer: nn.Module, *examples: Tensor, opset: int = 21) -> fx_onnx.ONNXProgram:
    layers = nn.Sequential(layer).eval()
    return fx_onnx.export(layers, examples, opset_version=opset, dynamic_shapes=({0: "batch"},), verbose=False)


@pytest.mark.parametrize("opset", [20, 21, 25])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer(name: str, opset: int) -> None:
    layer = LAYERS[name]()
    x = torch.randn(3, layer.expected.shape[1])
    program = exported(layer, x, opset=opset)
    assert_close(program(x)[0], linear(x, layer.expected), 1e-5)
    sizes = [v.const_value.nbytes for v in program.model.graph.initializers.values() if v.const_value.size >= 600]
    assert sum(sizes) <= layer.expected.numel() * (1 if opset < 21 or "8" in name else 0.5)


@pytest.mark.parametrize("threshold", [0.0, 6.0])
def test_products_with_outliers(threshold: float) -> None:
    """Tests LLM.int8(): an outlier in one row keeps its column of all rows from being rounded."""
    weight, scale, x = torch.randint(-127, 128, (12, 64), dtype=torch.int8), torch.rand(12), torch.randn(3, 64)
    x[1, 5] = 9.0
    state = SimpleNamespace(has_fp16_weights=False, SCB=scale, threshold=threshold)
    layer = layers.Layer("bitsandbytes.nn.modules:Linear8bitLt", {"weight": weight}, weight, state=state)
    half = x.half()
    if threshold:
        half[1, 5] = 0
    largest = half.abs().amax(-1, keepdim=True).float()
    rounded = (half * (127 / largest)).round()
    if threshold:
        rounded[:, 5] = 0
    expected = rounded @ weight.t().float() * (largest * scale) * 6.200124e-05
    if threshold:
        expected += x[:, 5:6] * (weight[:, 5].float() * scale / 127)
    assert_close(exported(layer, x)(x)[0], expected, 1e-5)
    state.SCB = None
    with pytest.raises(fx_onnx.OnnxExporterError, match="run the model once before the export"):
        exported(layer, x)


def test_what_has_no_form_is_refused_by_name() -> None:
    for name, change in {"quantized activations": {"activation_qtype": 1}, "not frozen": {"given": None}}.items():
        layer = layers.quanto("int8")
        vars(layer).update(change)
        with pytest.raises(fx_onnx.OnnxExporterError, match=rf"{name}.* dequantize the model before"):
            exported(layer, torch.randn(2, 64))
    changes: dict[str, dict[Any, Any]] = {
        r"a weight of num_bits=\(2, 1\)": {-1: 32, "scale_bits": (8, 0)}, "the last one is shorter": {-1: 24},
    }  # fmt: skip
    for name, sizes in changes.items():
        layer = layers.model_optimizer("nvfp4")
        layer.weight_quantizer._block_sizes = sizes
        with pytest.raises(fx_onnx.OnnxExporterError, match=rf"{name}.* dequantize the model before"):
            exported(layer, torch.randn(2, 64))


transformers = pytest.importorskip("transformers", reason="transformers is in the extra 'test'")


def fp8(blocks: tuple[int, int] | None, scale_fmt: str = "float") -> tuple[nn.Module, Tensor]:
    from transformers.integrations.finegrained_fp8 import FP8Linear

    layer = FP8Linear(70, 40, blocks, scale_fmt=scale_fmt, has_bias=True)
    with torch.no_grad():
        weight = torch.randn(40, 70).to(torch.float8_e4m3fn)
        layer.weight.copy_(weight)
        scale = torch.rand(layer.weight_scale_inv.shape).to(layer.weight_scale_inv.dtype)
        layer.weight_scale_inv.copy_(scale)
        layer.bias.copy_(torch.randn(40))
    full = scale.float()
    if blocks is not None:
        full = full.repeat_interleave(blocks[0], 0)[:40].repeat_interleave(blocks[1], 1)[:, :70]
    return layer, weight.float() * full


@pytest.mark.parametrize("blocks", [None, (32, 32), (128, 128), (1, 35)])
@pytest.mark.parametrize("scale_fmt", ["float", "ue8m0"])
def test_fp8_of_transformers(blocks: tuple[int, int] | None, scale_fmt: str) -> None:
    layer, expected = fp8(blocks, scale_fmt)
    x = torch.randn(3, 70)
    for opset in (19, 21, 24):
        program = exported(layer, x, opset=opset)
        assert_close(program(x)[0], linear(x, expected, layer.bias), 1e-5)
        assert "FLOAT8E4M3FN" in {value.dtype.name for value in program.model.graph.initializers.values()}


@pytest.mark.parametrize("kind", ["fp8", "fp4"])
def test_experts(kind: str) -> None:
    """Tests a mixture of experts, of which each token chose two; one choice is of no expert."""
    from transformers.integrations.finegrained_fp8 import FP8Experts

    config = SimpleNamespace(hidden_size=64, num_experts=3, moe_intermediate_size=32, hidden_act="silu")
    layer, plain, scales = FP8Experts(config, (32, 32), expert_dtype=kind), {}, {"fp8": (32, 32), "fp4": (1, 32)}[kind]
    with torch.no_grad():
        for name in ("gate_up_proj", "down_proj"):
            packed, scale = getattr(layer, name), getattr(layer, f"{name}_scale_inv")
            scale.copy_(torch.rand(scale.shape))
            codes = torch.randint(0, 120, packed.shape, dtype=torch.uint8)
            packed.copy_(codes.view(packed.dtype))
            values = torch.tensor(FLOAT4_VALUES)[torch.stack([codes & 15, codes >> 4], -1).flatten(-2).long()]
            numbers = values if kind == "fp4" else packed.float()
            plain[name] = numbers * scale.repeat_interleave(scales[0], 1).repeat_interleave(scales[1], 2) / 64
            scale.div_(64)
    x, weights = torch.randn(4, 64), torch.rand(4, 2)
    index = torch.tensor([[0, 2], [1, 0], [2, 1], [1, 3]])
    expected = torch.zeros(4, 64)
    for token, place in ((token, place) for token in range(4) for place in range(2) if index[token, place] < 3):
        expert = index[token, place]
        gate, up = (plain["gate_up_proj"][expert] @ x[token]).chunk(2)
        expected[token] += weights[token, place] * (plain["down_proj"][expert] @ (nn.functional.silu(gate) * up))

    class Calls(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
            return self.layer(x, index, weights)

    program = fx_onnx.export(Calls().eval(), (x, index, weights), opset_version=21, verbose=False)
    assert_close(program(x, index, weights)[0], expected, 1e-5)
    stored = {value.dtype.name for value in program.model.graph.initializers.values() if value.const_value.size > 2048}
    assert stored == {"UINT4" if kind == "fp4" else "FLOAT8E4M3FN"}


def test_an_embedding_of_8_bit_floats() -> None:
    from transformers.integrations.finegrained_fp8 import FP8Embedding

    layer = FP8Embedding(10, 8)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(10, 8).to(torch.float8_e4m3fn))
        layer.weight_scale.fill_(0.3)
    tokens = torch.tensor([[1, 2, 9]])
    assert_close(exported(layer, tokens)(tokens)[0], layer(tokens), 0)


def test_bitnet() -> None:
    from transformers.integrations.bitnet import BitLinear, unpack_weights

    layer, x = BitLinear(64, 12, False, dtype=torch.float32), torch.randn(3, 64)
    layer.weight.copy_(sum(torch.randint(0, 3, (3, 64), dtype=torch.uint8) << shift for shift in (0, 2, 4, 6)))
    layer.weight_scale.fill_(3.0)
    scale = 127 / x.abs().amax(-1, keepdim=True)
    expected = linear((x * scale).round(), unpack_weights(layer.weight, torch.float32)) / (3 * scale)
    program = exported(layer, x, opset=25)
    assert_close(program(x)[0], expected, 1e-5)
    assert "INT2" in {value.dtype.name for value in program.model.graph.initializers.values()}


def gguf(kind: int) -> tuple[nn.Module, Tensor]:
    """Returns a layer with random blocks, whose float16 numbers are finite, and its weight."""
    from transformers.integrations.gguf.dequant import GGML_BLOCK, dequantize
    from transformers.integrations.gguf.utils import GgufLinear

    size, halves = GGML_BLOCK[kind][1], {10: (80, 82), 11: (108,), 14: (208,)}.get(kind, (0, 2))
    layer = GgufLinear(512, 6, kind, bias=True)
    packed = torch.randint(0, 256, (6, layer.weight.shape[1] // size, size), dtype=torch.uint8)
    for start in halves:
        packed[..., start : start + 2] = torch.rand(*packed.shape[:2], 1).half().view(torch.uint8)
    with torch.no_grad():
        layer.weight.copy_(packed.flatten(1))
        layer.bias.zero_()
    return layer, dequantize(layer.weight, kind).reshape(6, 512)


@pytest.mark.parametrize("kind", [2, 3, 8, 10, 11, 12, 13, 14, 20])
def test_gguf(kind: int) -> None:
    layer, expected = gguf(kind)
    x = torch.randn(9, 512)
    program = exported(layer, x)
    assert_close(program(x)[0], linear(x, expected), 1e-5)
    bits = 8 if kind in (8, 13, 14) else 4
    weights = [value for value in program.model.graph.initializers.values() if value.const_value.size == 6 * 512]
    assert [value.dtype.bitwidth for value in weights] == [bits]


def test_gguf_without_a_form_is_refused() -> None:
    with pytest.raises(fx_onnx.OnnxExporterError, match="A GgufLinear has a weight of ggml type 23"):
        exported(gguf(23)[0], torch.randn(9, 512))
