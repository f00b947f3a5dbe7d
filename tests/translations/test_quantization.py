"""Quantized values.

The values are multiples of a quarter and the scales are powers of two, so that every rounding is exact.
"""

import math
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.messages.errors import TranslationError, UnsupportedOperatorError
from tests.compare import assert_close
from tests.harness import Case, arg, bf16, cases, check, f16, f32, f64, i8, i32, i64, u8
from tests.one_capture import OneCapture
from tests.torch_versions import needs

aten, quantized = torch.ops.aten, torch.ops.quantized_decomposed
GRID = tuple(x / 8 for x in (-999, -400, -37, -9, -4, -3, -1, 0, 1, 3, 4, 5, 9, 36, 37, 400, 999))
f8 = arg(torch.float8_e4m3fn)
grid = f32(5, 4, values=GRID)
scales, zeros = f32(4, values=(0.25, 0.5, 1.0, 2.0)), i64(4, values=(0, 3, -5, 1))
scale, zero = f32(1, values=(0.25,), fixed=True), i64(1, values=(3,), fixed=True)
INT8, UINT8, INT16 = (-128, 127, torch.int8), (0, 255, torch.uint8), (-32768, 32767, torch.int16)


@cases(
    [
        Case(quantized.quantize_per_tensor.default, grid, 0.25, 3, *INT8, emits=["QuantizeLinear"]),
        Case(quantized.quantize_per_tensor.default, grid, 0.25, 130, *UINT8, emits=["QuantizeLinear"]),
        Case(quantized.quantize_per_tensor.default, grid, 0.25, 0, -127, 127, torch.int8,
             emits=["QuantizeLinear", "Clip"]),
        Case(quantized.quantize_per_tensor.default, grid, 0.25, 0, -8, 7, torch.int8),
        Case(quantized.quantize_per_tensor.default, grid, 0.25, 7, *INT16, emits=["QuantizeLinear"]),
        Case(quantized.quantize_per_tensor.default, f16(5, 4, values=GRID), 0.25, 3, *INT8),
        Case(quantized.quantize_per_tensor.default, f32(), 0.25, 3, *INT8),
        Case(quantized.quantize_per_tensor.default, f32(0, 3), 0.25, 3, *INT8),
        Case(quantized.quantize_per_tensor.tensor, grid, scale, zero, *INT8),
        Case(quantized.quantize_per_channel.default, grid, scales, zeros, 1, *INT8, emits=["Cast", "QuantizeLinear"]),
        Case(quantized.quantize_per_token.default, grid, f64(5, 1, values=(0.25, 0.5, 1.0)), i64(5, 1), *INT8),
        Case(quantized.quantize_per_channel_group.default, grid, f32(5, 2, values=(0.25, 0.5, 1.0)), i32(5, 2), -8, 7,
             torch.int8, 2, dynamic=False),
    ]
)  # fmt: skip
def test_quantize(case: Case) -> None:
    check(case)


@cases(
    [
        Case(quantized.dequantize_per_tensor.default, i8(5, 4), 0.1, 3, *INT8, emits=["DequantizeLinear"]),
        Case(quantized.dequantize_per_tensor.default, u8(5, 4), 0.1, 0, *UINT8, emits=["DequantizeLinear"]),
        Case(quantized.dequantize_per_tensor.default, i8(5, 4), 0.25, 3, *INT8, out_dtype=torch.float16),
        Case(quantized.dequantize_per_tensor.default, i32(5, 4), 0.1, 0, -(2**31), 2**31 - 1, torch.int32,
             emits=["DequantizeLinear"]),
        Case(quantized.dequantize_per_tensor.default, i32(5, 4), 0.1, 2, -(2**31), 2**31 - 1, torch.int32),
        Case(quantized.dequantize_per_tensor.tensor, i8(5, 4), scale, zero, *INT8),
        Case(quantized.dequantize_per_channel.default, i8(5, 4), scales, zeros, 1, *INT8,
             emits=["Cast", "DequantizeLinear"]),
        Case(quantized.dequantize_per_channel.default, i8(5, 4), scales, None, 1, *INT8, emits=["DequantizeLinear"]),
        Case(quantized.dequantize_per_token.default, i8(5, 4), f64(5, 1), i64(5, 1), *INT8, torch.float32),
        Case(quantized.dequantize_per_channel_group.default, i8(5, 4), f32(5, 2), i32(5, 2), -8, 7, torch.int8, 2,
             torch.float32, dynamic=False, emits=["Cast", "DequantizeLinear"]),
        Case(quantized.dequantize_per_channel_group.default, i8(5, 4), f32(5, 1), None, -8, 7, torch.int8, 32,
             torch.float32, dynamic=False),
    ]
)  # fmt: skip
def test_dequantize(case: Case) -> None:
    check(case)


@cases(
    [
        Case(quantized.choose_qparams.tensor, f32(5, 4), *INT8[:2], 1e-5, torch.int8),
        Case(quantized.choose_qparams.tensor, f32(5, 4, low=1.0), *UINT8[:2], 1e-5, torch.uint8),
        Case(quantized.choose_qparams_symmetric.tensor, f32(5, 4), *INT8[:2], 1e-5, torch.int8),
        Case(quantized.choose_qparams_per_token.default, f32(5, 4), torch.int8),
        Case(quantized.choose_qparams_per_token_asymmetric.default, f32(5, 4), torch.int8),
    ]
)
def test_choose_qparams(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.fake_quantize_per_tensor_affine.default, grid, 0.25, 3, *INT8[:2],
             emits=["QuantizeLinear", "DequantizeLinear"]),
        Case(aten.fake_quantize_per_tensor_affine.default, grid, 0.25, 3, 0, 15,
             emits=["QuantizeLinear", "Clip", "DequantizeLinear"]),
        Case(aten.fake_quantize_per_tensor_affine.default, grid, 0.25, 3, -1000, 1000),
        Case(aten.fake_quantize_per_tensor_affine.default, f64(5, 4, values=GRID), 0.25, 3, *INT8[:2]),
        Case(aten.fake_quantize_per_tensor_affine.default, f16(5, 4, values=GRID), 0.25, 3, *INT8[:2]),
        Case(aten.fake_quantize_per_tensor_affine.default, bf16(5, 4, values=GRID), 0.25, 3, *INT8[:2]),
        Case(aten.fake_quantize_per_tensor_affine.tensor_qparams, grid, scale, i32(1, values=(3,)), *INT8[:2]),
        Case(aten.fake_quantize_per_tensor_affine_cachemask.default, grid, 0.25, 3, *INT8[:2]),
        Case(aten.fake_quantize_per_channel_affine.default, grid, scales, i32(4, values=(0, 3, -5, 1)), 1,
             *INT8[:2]),
        Case(aten.fake_quantize_per_channel_affine_cachemask.default, grid, scales,
             i32(4, values=(0, 3, -5, 1)), 1, *INT8[:2]),
    ]
)  # fmt: skip
def test_fake_quantize(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten._int_mm.default, i8(18, 8), i8(8, 16), emits=["MatMulInteger"], dynamic=False),
        Case(aten._weight_int8pack_mm.default, f32(4, 16), i8(8, 16), f32(8), dynamic=False),
        Case(aten._weight_int8pack_mm.default, bf16(4, 16), i8(8, 16), bf16(8), dynamic=False),
        Case(aten._scaled_mm.default, f8(16, 32), f8(32, 16), f32(values=(0.5,)), f32(values=(2.0,)),
             out_dtype=torch.float32, dynamic=False, opsets=[20]),
    ]
)  # fmt: skip
def test_products(case: Case) -> None:
    check(case)


@needs("uint8 products")
@cases(
    [
        # 7 bits, because ONNX Runtime saturates sums of two products at 16 bits on x64 processors without VNNI
        Case(aten._int_mm.default, u8(18, 8, high=255), i8(8, 16, low=-64, high=63), dynamic=False),
        Case(aten._scaled_mm_v2.default, f8(16, 32), f8(32, 16), [f32(values=(0.5,))], [0], [], [f32(values=(2.0,))],
             [0], [], None, torch.float32, dynamic=False, opsets=[20]),
    ]
)  # fmt: skip
def test_products_that_need_newer_kernels(case: Case) -> None:
    check(case)


def test_weights_packed_for_a_processor_are_refused() -> None:
    class Packed(nn.Module):
        def forward(self, x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
            return aten._weight_int4pack_mm_for_cpu(x, weight, 32, scales)

    weight = torch._convert_weight_to_int4pack_for_cpu(torch.ones(32, 64, dtype=torch.int32), 2)
    with pytest.raises(UnsupportedOperatorError, match=r"_weight_int4pack_mm_for_cpu\.default: 1 call"):
        fx_onnx.export(Packed().eval(), (torch.randn(4, 64), weight, torch.randn(2, 32, 2)))


class Quantized(nn.Module):
    """A linear layer as PT2E produces it: int8 weights by channel, activations quantized and dequantized before it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 127, (4, 8), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(4) / 64)
        self.register_buffer("zeros", torch.zeros(4, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        x = quantized.dequantize_per_tensor(quantized.quantize_per_tensor(x, 0.25, 3, *INT8), 0.25, 3, *INT8)
        weight = quantized.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, *INT8)
        return nn.functional.linear(x, weight)


def run(module: nn.Module, *examples: Tensor, **options: Any) -> fx_onnx.ONNXProgram:
    shapes = ({0: "batch"},)
    program = fx_onnx.export(module.eval(), (examples[0],), dynamic_shapes=shapes, verbose=False, **options)
    for example in examples:
        with torch.no_grad():
            assert_close(program(example), module(example), None)
    return program


def test_the_optimizer_keeps_quantized_weights() -> None:
    program = run(Quantized(), torch.randn(3, 8), torch.randn(5, 8))
    found = [node.op_type for node in program.model.graph]
    assert (found.count("QuantizeLinear"), found.count("DequantizeLinear")) == (1, 2)
    stored = {value.dtype.name for value in program.model.graph.initializers.values() if value.dtype is not None}
    assert "UINT8" in stored and "INT8" not in stored


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_weights(dtype: torch.dtype) -> None:
    class Float8(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.randn(4, 8).to(dtype))

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(x.to(dtype).to(torch.float32), self.weight.to(torch.float32))

    program = run(Float8(), torch.randn(3, 8), torch.randn(5, 8))
    assert program.model.graph.initializers["weight"].dtype.name.startswith("FLOAT8")


FLOAT8 = [torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz]


class Rounds(nn.Module):
    """Converts to a float8 dtype and back."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        return x.to(self.dtype).float()


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("source", [torch.float32, torch.float16])
def test_overflow_in_float8_is_as_in_torch(dtype: torch.dtype, source: torch.dtype) -> None:
    values = [0.0, 1.0, 240.0, 250.0, 448.0, 464.0, 465.0, 500.0, 57344.0, 1e6, math.inf, -math.inf, math.nan, -500.0]
    run(Rounds(dtype), torch.tensor(values).to(source), torch.tensor([0.3, -0.001, 1e-6, 449.0]).to(source))


class Moves(nn.Module):
    """Transposes, concatenates, slices and gathers weights in a float8 dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.register_buffer("weight", torch.randn(6, 8).to(dtype))
        self.register_buffer("table", torch.randn(10, 8).to(dtype))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        joined = torch.cat([self.weight.t(), x.to(self.dtype).t()], 1)
        return joined[1:].float().reshape(-1), self.table[torch.arange(3)].float()


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("optimize", [False, True])
def test_float8_weights_are_moved(dtype: torch.dtype, optimize: bool) -> None:
    module, x = Moves(dtype).eval(), torch.randn(1, 8)
    captured = OneCapture(module, (x,), optimize=optimize)
    for opset in (19, 20, 23):
        program = captured.export(opset_version=opset)
        onnx.checker.check_model(program.model_proto, full_check=True)
        assert_close(program(x), module(x), None)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8_needs_opset_19(dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.").replace("_", "")
    with pytest.raises(TranslationError, match=f"{name}, which ONNX has from opset 19 on"):
        fx_onnx.export(Rounds(dtype).eval(), (torch.ones(3),), opset_version=18)


class Float4(nn.Module):
    """Unpacks the bytes of a weight of 4-bit floats, and returns rows of it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(0, 256, (4, 8), dtype=torch.uint8).view(torch.float4_e2m1fn_x2))
        self.register_buffer("values", torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        packed = self.weight.view(torch.uint8)
        codes = torch.stack([packed & 15, packed >> 4], -1).flatten(-2)
        return x @ self.values[codes.int()].t(), torch.cat([self.weight, self.weight])[1:3].t()


@pytest.mark.parametrize("opset", [18, 23])
def test_packed_float4_weights(opset: int) -> None:
    module, x = Float4().eval(), torch.randn(2, 16)
    program = fx_onnx.export(module, (x,), opset_version=opset, verify=True)
    assert program.model.graph.initializers["weight"].dtype.name == "UINT8"
    with pytest.raises(fx_onnx.OnnxExporterError, match="pass its bytes"):
        fx_onnx.export(module, (module.weight,), opset_version=opset)


class E8M0(nn.Module):
    """Multiplies by scales that are powers of two."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor([0.5, 1.0, 4.0, 2.0**-127, 2.0**127]).to(torch.float8_e8m0fnu))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale.float()


def test_float8_e8m0_scales() -> None:
    program = run(E8M0(), torch.ones(2, 5), torch.ones(3, 5), opset_version=24)
    assert program.model.graph.initializers["scale"].dtype.name == "FLOAT8E8M0"
    with pytest.raises(TranslationError, match="from opset 24 on"):
        fx_onnx.export(E8M0().eval(), (torch.ones(2, 5),), opset_version=20)
    with pytest.raises(TranslationError, match="drops the sign"):
        fx_onnx.export(Rounds(torch.float8_e8m0fnu).eval(), (torch.ones(3),), opset_version=24)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_networks(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4), nn.Softmax(-1)).to(dtype)
    run(net, torch.randn(3, 8).to(dtype), torch.randn(5, 8).to(dtype))
