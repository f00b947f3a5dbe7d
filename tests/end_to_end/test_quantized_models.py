"""Networks quantized by PT2E and torchao: from the quantizer to ONNX Runtime."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import fx_onnx
from tests.compare import assert_close
from tests.models.decoders import decoder

pytest.importorskip("torchao", reason="torchao is in the extra 'test'")
from torchao import quantization as ao
from torchao.quantization import pt2e
from torchao.quantization.pt2e import quantize_pt2e
from torchao.quantization.pt2e.quantizer import Quantizer
from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
from torchao.testing.pt2e import _xnnpack_quantizer as xnnpack  # the copy from ExecuTorch, which is rarely installed

BATCH = ({0: "batch"},)


class ResidualBlock(nn.Module):
    """Convolutions with batch norms, a residual connection, a pooling and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv, self.fc = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = torch.relu(self.conv(x) + x)
        return self.fc(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Attention(nn.Module):
    """A self-attention layer."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        return x + self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Mobile(nn.Module):
    """Parts of networks for phones: a depthwise convolution, a gate, a transposed convolution, a pooling."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depthwise = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.larger, self.fc = nn.ConvTranspose2d(16, 4, 2, stride=2), nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.hardtanh(self.stem(x))
        x = torch.cat([x * self.depthwise(x), x.relu()], 1)
        x = nn.functional.hardswish(nn.functional.max_pool2d(self.larger(x), 2))
        return self.fc(x.mean((2, 3)))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64, bias=False))


def images(batch: int) -> Tensor:
    return torch.randn(batch, 3, 8, 8)


def tokens(batch: int) -> Tensor:
    return torch.randn(batch, 6, 16)


def rows(batch: int) -> Tensor:
    return torch.randn(batch, 64)


def converted(make: Callable[[], nn.Module], inputs: Callable[[int], Tensor], **kind: bool) -> nn.Module:
    """Returns the network after PT2E with X86InductorQuantizer."""
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config(**kind))
    return after_pt2e(make, inputs, quantizer, trains=kind.get("is_qat", False))


def after_pt2e(
    make: Callable[[], nn.Module], inputs: Callable[[int], Tensor], quantizer: Quantizer, trains: bool
) -> nn.Module:
    """Captures, prepares, calibrates and converts the network."""
    torch.manual_seed(0)
    program = torch.export.export(make().train(trains), (inputs(2),), dynamic_shapes=({0: Dim("batch")},))
    captured = program.module(check_guards=False)
    prepare = quantize_pt2e.prepare_qat_pt2e if trains else quantize_pt2e.prepare_pt2e
    prepared = prepare(captured, quantizer)
    for _ in range(3):
        prepared(inputs(2))
    if trains:
        pt2e.move_exported_model_to_eval(prepared)
    return quantize_pt2e.convert_pt2e(prepared)


def exported(module: nn.Module, inputs: Callable[[int], Tensor], **options: Any) -> fx_onnx.ONNXProgram:
    """Exports the network and compares it with eager at two batch sizes."""
    torch.manual_seed(1)
    examples = inputs(2), inputs(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a converted program has neither training nor eval mode
        program = fx_onnx.export(module, (examples[0],), dynamic_shapes=BATCH, **options)
    for example in examples:
        with torch.no_grad():
            assert_close(program(example), module(example), None)
    return program


def operators(program: fx_onnx.ONNXProgram) -> Counter[str]:
    return Counter(node.op_type for node in program.model.graph)


def stored(program: fx_onnx.ONNXProgram) -> dict[str, str]:
    """Returns the dtypes of the matrices and kernels in the model, by name."""
    values = program.model.graph.initializers.values()
    return {str(v.name): v.dtype.name for v in values if v.shape is not None and v.dtype and len(v.shape) > 1}


@pytest.mark.parametrize("opset", [18, 20, 21, 23])
def test_pt2e(opset: int) -> None:
    """Tests that weights are INT8 initializers, and that each layer reads its own DequantizeLinear."""
    program = exported(converted(ResidualBlock, images), images, opset_version=opset)
    assert set(stored(program).values()) == {"INT8"}
    assert operators(program) == {
        "QuantizeLinear": 3, "DequantizeLinear": 7, "Conv": 2, "Gemm": 1, "Relu": 2, "Add": 1,
        "GlobalAveragePool": 1, "Reshape": 1,
    }  # fmt: skip
    readers = [node.op_type for value in program.model.graph.initializers.values() if value.dtype is not None
               and value.dtype.name == "INT8" and len(value.shape or ()) > 1 for node in value.consumers()]  # fmt: skip
    assert readers == ["DequantizeLinear"] * 3


def test_pt2e_attention() -> None:
    """Tests that the weight of a 3-D product is stored transposed, so that its scale is next to the product."""
    program = exported(converted(Attention, tokens), tokens)
    assert set(stored(program).values()) == {"INT8"}
    products = [node for node in program.model.graph if node.op_type == "MatMul"]
    factors = [node.inputs[1].producer() for node in products if node.inputs[1] is not None]
    assert [node.op_type for node in factors if node is not None].count("DequantizeLinear") == 2


@pytest.mark.parametrize(("make", "inputs"), [(mlp, rows), (Attention, tokens)], ids=["mlp", "attention"])
def test_pt2e_dynamic(make: Callable[[], nn.Module], inputs: Callable[[int], Tensor]) -> None:
    """Tests scales of activations that are computed at run time."""
    program = exported(converted(make, inputs, is_dynamic=True), inputs)
    assert set(stored(program).values()) == {"INT8"}
    assert operators(program)["QuantizeLinear"] == 2


def test_pt2e_after_training() -> None:
    program = exported(converted(ResidualBlock, images, is_qat=True), images)
    assert set(stored(program).values()) == {"INT8"}
    assert operators(program)["QuantizeLinear"] == 4


@pytest.mark.parametrize("kind", ["is_per_channel", "is_qat", "is_dynamic"])
def test_pt2e_for_xnnpack(kind: str) -> None:
    """Tests operators that X86InductorQuantizer does not quantize: sums, products, cat, transposed convolutions."""
    quantizer = xnnpack.XNNPACKQuantizer()
    quantizer.set_global(xnnpack.get_symmetric_quantization_config(**{kind: True}))
    program = exported(after_pt2e(Mobile, images, quantizer, trains=kind == "is_qat"), images)
    count = Counter(stored(program).values())["INT8"]
    assert (count, operators(program)["QuantizeLinear"]) == ((1, 1) if kind == "is_dynamic" else (3, 8))


CONFIGS: dict[str, Callable[[], Any]] = {
    "int8_weights": ao.Int8WeightOnlyConfig,
    "int8_weights_in_groups": lambda: ao.Int8WeightOnlyConfig(granularity=ao.PerGroup(32)),
    "int8_by_channel": lambda: ao.IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=ao.PerAxis(0)),
    "int4_in_groups": lambda: ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=ao.PerGroup(32)),
    "int4_asymmetric": lambda: ao.IntxWeightOnlyConfig(
        weight_dtype=torch.int4, granularity=ao.PerGroup(32), mapping_type=ao.MappingType.ASYMMETRIC
    ),
    "int2_in_groups": lambda: ao.IntxWeightOnlyConfig(weight_dtype=torch.int2, granularity=ao.PerGroup(32)),
    "int8_dynamic": ao.Int8DynamicActivationInt8WeightConfig,
    "int8_dynamic_asymmetric": lambda: ao.Int8DynamicActivationInt8WeightConfig(
        act_mapping_type=ao.MappingType.ASYMMETRIC
    ),
    "int8_dynamic_int4": lambda: ao.Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=ao.PerGroup(32)
    ),
    "float8_weights": ao.Float8WeightOnlyConfig,
}


def quantized(config: str, make: Callable[[], nn.Module] = mlp) -> nn.Module:
    torch.manual_seed(0)
    module = make().eval()
    ao.quantize_(module, CONFIGS[config]())
    return module


@pytest.mark.parametrize("opset", [20, 21])
@pytest.mark.parametrize("config", CONFIGS)
def test_torchao(config: str, opset: int) -> None:
    """Tests the tensor subclasses of quantize_; integers and 8-bit floats keep their dtypes."""
    program = exported(quantized(config), rows, opset_version=opset)
    four = {"INT4", "FLOAT"} if opset >= 21 else {"INT8"}  # a scale and a zero point for each block
    eight = {"INT8", "FLOAT"} if "in_groups" in config and opset >= 21 else {"INT8"}
    weights = {"FLOAT8E4M3FN"} if "float8" in config else four if "int4" in config or "int2" in config else eight
    assert set(stored(program).values()) == weights
    if "int8_dynamic" not in config or "int4" in config:
        assert operators(program)["DequantizeLinear"] >= 2
    else:
        assert operators(program)["MatMulInteger"] == 2


def test_two_bits() -> None:
    """Tests 2-bit integers, which exist from opset 25 on."""
    program = exported(quantized("int2_in_groups"), rows, opset_version=25)
    assert set(stored(program).values()) == {"INT2", "FLOAT"}


def test_unwrapped_subclasses() -> None:
    """Tests torchao's own preparation for export, in which the inner tensors become parameters of a parametrization."""
    from torchao.utils import unwrap_tensor_subclass

    program = exported(unwrap_tensor_subclass(quantized("int4_asymmetric")), rows, opset_version=21)
    assert set(stored(program).values()) == {"INT4", "FLOAT"}


@pytest.mark.parametrize(("config", "dtype"), [("int8_weights", "INT8"), ("int4_asymmetric", "INT4")])
def test_a_decoder_with_a_cache(config: str, dtype: str) -> None:
    """Tests weights of 4 and 8 bits in a language model: of its large matrices, only the embedding stays in floats."""
    model = decoder("llama", hidden_size=64, intermediate_size=128, head_dim=16)
    ao.quantize_(model, CONFIGS[config]())
    arguments = fx_onnx.text_generation_arguments(model, padding=False)  # its cache holds five tokens 0
    program = fx_onnx.export(model, **arguments, opset_version=21)
    weights = [value.const_value for value in program.model.graph.initializers.values()]
    assert Counter(each.dtype.name for each in weights if each.size >= 64 * 64) == {dtype: 11, "FLOAT": 1}
    tokens = torch.tensor([[5, 6, 7]] * 2)
    found, *_ = program(input_ids=tokens, past_key_values=arguments["kwargs"]["past_key_values"])
    expected = model(input_ids=torch.cat([torch.zeros(2, 5, dtype=torch.int64), tokens], 1)).logits[:, 5:]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
