"""torchao's operators.

The scales are powers of two and the values are multiples of an eighth, so that every rounding is exact.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.translations._quantize_linear import ScaleLayout, scale_layout
from tests.compare import assert_close
from tests.harness import Case, bf16, cases, check, f16, f32, i8, i32, u8
from tests.one_capture import OneCapture

pytest.importorskip("torchao", reason="torchao is in the extra 'test'")
import torchao.quantization.quant_primitives  # registers torch.ops.torchao

torchao = torch.ops.torchao
GRID = tuple(x / 8 for x in (-999, -400, -37, -9, -4, -3, -1, 0, 1, 3, 4, 5, 9, 36, 37, 400, 999))
QUARTERS = (0.25, 0.5, 1.0, 2.0)
INT8 = (torch.int8, -128, 127)
grid = f32(4, 8, values=GRID)
at = [18, 20, 21, 23]  # given here, because the harness finds no translation that is registered by name


def scales(*shape: int, **options: bool) -> object:
    return f32(*shape, values=QUARTERS, **options)


def zeros(*shape: int, **options: bool) -> object:
    return i32(*shape, values=(0, 3, -5, 1), **options)


@cases(
    [
        Case(torchao.quantize_affine.default, grid, [4, 8], scales(1), zeros(1), *INT8, dynamic=False, opsets=at,
             emits=["Reshape", "Cast", "Reshape", "QuantizeLinear"]),
        Case(torchao.quantize_affine.default, grid, [1, 8], scales(4, 1), zeros(4, 1), *INT8, dynamic=False, opsets=at,
             emits=["Reshape", "Reshape", "Cast", "QuantizeLinear"]),
        Case(torchao.quantize_affine.default, grid, [4, 1], scales(8), zeros(8), torch.int8, -8, 7, dynamic=False,
             opsets=at, emits=["Cast", "QuantizeLinear", "Clip"]),
        Case(torchao.quantize_affine.default, grid, [1, 4], scales(4, 2), zeros(4, 2), *INT8, dynamic=False, opsets=at,
             emits=["Cast", "QuantizeLinear"]),
        Case(torchao.quantize_affine.default, grid, [2, 4], scales(2, 2), zeros(2, 2), *INT8, dynamic=False, opsets=at),
        Case(torchao.quantize_affine.default, f32(2, 3, 8, values=GRID), [1, 1, 8], scales(2, 3, 1), zeros(2, 3, 1),
             *INT8, dynamic=False, opsets=at, emits=["Cast", "QuantizeLinear"]),
        Case(torchao.quantize_affine.default, grid, [1, 8], scales(4), i32(4, values=(0, 3)), torch.uint4,
             dynamic=False, opsets=at),
        Case(torchao.quantize_affine.default, f16(4, 8, values=GRID), [1, 8], f16(4, values=QUARTERS), zeros(4), *INT8,
             dynamic=False, opsets=at),
        Case(torchao.quantize_affine.default, bf16(4, 8, values=GRID), [1, 8], scales(4), zeros(4), *INT8,
             dynamic=False, opsets=at),
    ]
)  # fmt: skip
def test_quantize(case: Case) -> None:
    check(case)


@cases(
    [
        Case(torchao.dequantize_affine.default, i8(4, 8), [4, 8], scales(1), zeros(1), *INT8, dynamic=False, opsets=at,
             emits=["Reshape", "Cast", "Reshape", "DequantizeLinear"]),
        Case(torchao.dequantize_affine.default, i8(4, 8), [1, 8], scales(4), None, *INT8, dynamic=False, opsets=at,
             emits=["DequantizeLinear"]),
        Case(torchao.dequantize_affine.default, u8(4, 8), [1, 8], scales(4, 1), i32(4, 1, values=(0, 3)), torch.uint8,
             dynamic=False, opsets=at),
        Case(torchao.dequantize_affine.default, i8(4, 8), [1, 4], scales(4, 2), zeros(4, 2), torch.int8, -8, 7,
             dynamic=False, opsets=at, emits=["Cast", "DequantizeLinear"]),
        Case(torchao.dequantize_affine.default, i8(4, 8), [2, 1], scales(2, 8), zeros(2, 8), *INT8, dynamic=False,
             opsets=at, emits=["Cast", "DequantizeLinear"]),
        Case(torchao.dequantize_affine.default, i8(4, 8), [2, 4], scales(2, 2), zeros(2, 2), *INT8, dynamic=False,
             opsets=at),
        Case(torchao.dequantize_affine.default, i8(4, 8), [1, 4], scales(4, 2), f32(4, 2), *INT8, dynamic=False,
             opsets=at),
        Case(torchao.dequantize_affine.default, i32(4, 8), [1, 4], scales(4, 2), zeros(4, 2), torch.int32,
             dynamic=False, opsets=at),
        Case(torchao.dequantize_affine.default, i8(4, 8), [1, 4], f16(4, 2, values=(0.1, 0.7)), zeros(4, 2), *INT8,
             output_dtype=torch.float16, dynamic=False, opsets=at),
        Case(torchao.dequantize_affine.default, i8(4, 8), [1, 8], bf16(4, values=(0.1, 0.7)), zeros(4), *INT8,
             output_dtype=torch.bfloat16, dynamic=False, opsets=at),
    ]
)  # fmt: skip
def test_dequantize(case: Case) -> None:
    check(case)


class PerToken(nn.Module):
    """Quantizes activations for each token with parameters computed at run time, as dynamic quantization does."""

    def __init__(self, mapping: str) -> None:
        super().__init__()
        self.mapping = mapping

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        block = [1] * (x.dim() - 1) + [x.shape[-1]]
        rest = (torch.int8, -128, 127)
        scale, zero = torchao.choose_qparams_affine(
            x, self.mapping, block, *rest, 1e-5, torch.float32, torch.int8, True
        )
        integers = torchao.quantize_affine(x, block, scale, zero, *rest)
        return torchao.dequantize_affine(integers, block, scale, zero, *rest), scale


@pytest.mark.parametrize("mapping", ["SYMMETRIC", "ASYMMETRIC"])
@pytest.mark.parametrize("shape", [(5, 8), (2, 3, 8)], ids=str)
def test_dynamic_quantization(mapping: str, shape: tuple[int, ...]) -> None:
    """Tests that each token has its own scale and zero point, for any number of tokens."""
    x, other = torch.randn(shape), torch.randn(*(size + 1 for size in shape[:-1]), shape[-1])
    dims = {axis: f"tokens_{axis}" for axis in range(len(shape) - 1)}
    module = PerToken(mapping).eval()
    captured = OneCapture(module, (x,), dynamic_shapes=(dims,))
    programs = [captured.export(opset_version=opset) for opset in at]
    for program, example in itertools.product(programs, (x, other, torch.zeros(shape))):
        assert [node.op_type for node in program.model.graph].count("QuantizeLinear") == 1
        got, want, scale = program(example)[0], *module(example)
        steps = example / scale
        # At a midpoint both roundings are right. A symmetric mapping puts the largest value of a token there.
        midpoint = ((steps - steps.floor()) - 0.5).abs() < 1e-4
        assert_close(got.where(~midpoint, 0), want.where(~midpoint, 0), None)
        assert ((got - want).abs() <= 1.0001 * scale).all()


class Blocks(nn.Module):
    """A linear layer whose weight has integers in [-8, 7] (or [0, 15]), with a scale and zero point for each 4."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.low, self.dtype = (-8 if dtype == torch.int8 else 0), dtype
        self.weight = nn.Parameter(torch.randint(self.low, self.low + 16, (6, 8)).to(dtype), requires_grad=False)
        self.scale = nn.Parameter(torch.rand(6, 2))
        self.zero = nn.Parameter(torch.randint(self.low, self.low + 16, (6, 2)).to(dtype), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        limits = self.low, self.low + 15
        weight = torchao.dequantize_affine(self.weight, [1, 4], self.scale, self.zero, self.dtype, *limits)
        return nn.functional.linear(x, weight)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
@pytest.mark.parametrize("shape", [(3, 8), (2, 3, 8)], ids=str)
def test_weights_of_four_bits(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Tests that weights are stored in 4 bits from opset 21 on, and in 8 bits below, where ONNX has no 4-bit dtype."""
    module, x = Blocks(dtype).eval(), torch.randn(shape)
    for opset, stored in ((18, 8), (20, 8), (21, 4), (23, 4)):
        for optimize in (True, False):
            program = fx_onnx.export(module, (x,), opset_version=opset, optimize=optimize)
            assert_close(program(x), module(x), None)
        program.optimize()
        (weight,) = [v for v in program.model.graph.initializers.values() if str(v.name).startswith("weight")]
        assert weight.dtype is not None and weight.dtype.bitwidth == stored
        assert [node.op_type for node in program.model.graph].count("DequantizeLinear") == 1


def test_layouts() -> None:
    assert scale_layout([4, 8], [4, 8]) == ScaleLayout()
    assert scale_layout([4, 8], [1, 8]) == scale_layout([4, 8, 1], [1, 8, 1]) == ScaleLayout(0)
    assert scale_layout([4, 8], [1, 4]) == ScaleLayout(1, 4)
    assert scale_layout([4, 8, 2], [1, 1, 2]) == ScaleLayout(2, 2)
    assert scale_layout([4, 8], [2, 4]) is None
    assert scale_layout([4, 8], [1, 1]) is None
    assert ScaleLayout(1, 4).sizes([4, 8]) == [4, 2]
