"""QuantizeLinear with a computed scale as arithmetic."""

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import Tensor

from fx_onnx.backends.ladder import OpsetStep
from fx_onnx.backends.legalization.products import (
    legalize_asymmetric_dequantization,
    legalize_asymmetric_quantization,
    legalize_dequantization,
    legalize_dynamic_quantization,
    legalize_quantization,
    legalize_rounding,
    legalize_weight_casts,
)
from tests.passes.checking import check, check_equal, model

X = torch.tensor([[[0.5, 1.5], [-2.5, 300.0]], [[1.0, -7.25], [3.5, -999.0]]])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_scale_for_each_index(axis: int, dtype: str) -> None:
    """Halves are rounded to even, and the results saturate."""
    zero = f"<{dtype}[2] zero = {{3, 0}}, float[2] two = {{1.0, 2.0}}>"
    text = f"""g (float[A,B,C] x, float[2] s) => ({dtype}[A,B,C] y) {zero} {{
      scale = Mul(s, two)\n y = QuantizeLinear<axis={axis}>(x, scale, zero)
    }}"""
    expected = ["Mul", "Div", "Round", "Add", "Clip", "Cast"]
    expected += [] if axis == -1 else ["Reshape", "Reshape"]
    check(model(text), legalize_dynamic_quantization, [X, torch.tensor([1.0, 0.5])], expected)


def test_one_scale() -> None:
    text = "g (float[A,B,C] x, float s) => (uint8[A,B,C] y) { y = QuantizeLinear(x, s) }"
    expected = ["Div", "Round", "Clip", "Cast"]
    check(model(text), legalize_dynamic_quantization, [X, torch.tensor(0.5)], expected)


def test_a_constant_scale_stays() -> None:
    text = "g (float[A,B,C] x) => (uint8[A,B,C] y) <float s = {0.5}> { y = QuantizeLinear(x, s) }"
    check(model(text), legalize_dynamic_quantization, [X], ["QuantizeLinear"])
    check(model(text), legalize_quantization, [X], ["Div", "Round", "Clip", "Cast"])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_dequantization_of_a_weight(axis: int) -> None:
    zero = "int8[2] zero = {3, 0}, float[2] scale = {0.5, 2.0}"
    text = f"""g (float[2,2,2] x) => (float[2,2,2] y) <int8[2,2,2] q = {{1, -2, 3, 127, -128, 5, 6, 7}}, {zero}> {{
      w = DequantizeLinear<axis={axis}>(q, scale, zero)\n y = Add(x, w)
    }}"""
    expected = ["Cast", "Sub", "Mul", "Add"] + ([] if axis == -1 else ["Reshape", "Reshape"])
    check(model(text), legalize_dequantization, [X], expected)


@pytest.mark.parametrize(
    ("dtype", "zero", "given"),
    [
        ("int8", -3, "z z"),
        ("uint8", 7, "z z"),
        ("uint16", 40000, "z z"),
        ("int16", 0, "z z"),
        ("uint8", 0, "z"),
        ("uint8", 0, ""),
    ],
)
@pytest.mark.parametrize("scale", [0.5, 0.3])
def test_a_pair_rounds_floats(dtype: str, zero: int, given: str, scale: float) -> None:
    """Halves are rounded to even, and the results saturate; there is no Round. A missing zero point is 0."""
    first, second = ([f", {name}" for name in given.split()] + ["", ""])[:2]
    text = f"g (float[N] x) => (float[N] y) <float s = {{{scale}}}, {dtype} z = {{{zero}}}>"
    text += f"{{ q = QuantizeLinear(x, s{first}) y = DequantizeLinear(q, s{second}) }}"
    x = torch.cat([torch.arange(-300, 300) * 0.25, torch.randn(50) * 30, torch.tensor([4e4, -4e4, 1e30, -1e30])])
    check(model(text, opset=21), legalize_rounding, [x], ["Div", "Clip", "Add", "Sub", "Mul"])


def test_a_pair_with_two_zero_points_stays() -> None:
    text = """g (float[N] x) => (float[N] y) <float s = {0.5}, uint8 z = {1}, uint8 w = {2}>
    { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, w) }"""
    assert not legalize_rounding(model(text)).modified


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_pair_stays_in_floats(dtype: str) -> None:
    """The integer between the two operators is not computed, and the zero points are constants: there is no Cast."""
    text = f"""g (float[A,B,C] x) => (float[A,B,C] y) <float s = {{0.5}}, {dtype} z = {{7}}> {{
      q = QuantizeLinear(x, s, z)\n y = DequantizeLinear(q, s, z)
    }}"""
    expected = ["Div", "Round", "Add", "Clip", "Sub", "Mul"]
    check(model(text), legalize_dequantization, [X], expected)


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("(float[N] x) => (uint8[N] y) <float s = {0.5}, uint8 z = {100}> { y = QuantizeLinear(x, s, z) }",
         [torch.arange(-8.0, 8.0) / 4]),
        ("(float[N] x) => (int8[N] y) <float s = {0.02}, int8 z = {3}> { y = QuantizeLinear(x, s, z) }",
         [torch.arange(-8.0, 8.0)]),
        ("(int8[N] x) => (float[N] y) <float s = {0.5}, int8 z = {3}> { y = DequantizeLinear(x, s, z) }",
         [torch.arange(-8, 8, dtype=torch.int8)]),
        # weights of 7 bits: test_products.py has the reason
        ("(uint8[A,B] x, int8[B,C] w) => (int32[A,C] y) <uint8 z = {3}> { y = MatMulInteger(x, w, z) }",
         [torch.randint(0, 255, (2, 9), dtype=torch.uint8), torch.randint(-64, 63, (9, 3), dtype=torch.int8)]),
    ],
)  # fmt: skip
def test_quantized(text: str, inputs: Sequence[Tensor]) -> None:
    check_equal(model(f"g {text}", opset=10), OpsetStep(9), inputs)


# ---------------------------------------------------------------- TensorRT

QUANTIZED = """g (float[2,3] x) => ({dtype}[2,3] y) <float s = {{0.5}}, {kind} z = {{{zero}}}> {{
  q = QuantizeLinear(x, s, z)\n y = {result}
}}"""


@pytest.mark.parametrize(("kind", "zero"), [("uint8", 128), ("int8", -3)])
def test_a_pair_that_is_not_symmetric_is_arithmetic_of_floats(kind: str, zero: int) -> None:
    text = QUANTIZED.format(dtype="float", kind=kind, zero=zero, result="DequantizeLinear(q, s, z)")
    program = model(text)
    x = torch.tensor([[0.3, -100.0, 7.25], [0.25, 300.0, -0.75]])
    expected = ["Div", "Round", "Add", "Clip", "Sub", "Mul"]
    check(program, legalize_asymmetric_dequantization, [x], expected)


def test_a_result_in_8_bits() -> None:
    text = QUANTIZED.format(dtype="uint8", kind="uint8", zero=128, result="Identity(q)")
    expected = ["Div", "Round", "Add", "Clip", "Cast", "Identity"]
    check(model(text), legalize_asymmetric_quantization, [torch.tensor([[0.3, -100.0, 7.25]] * 2)], expected)


@pytest.mark.parametrize("rule", [legalize_asymmetric_quantization, legalize_asymmetric_dequantization])
def test_symmetric_quantization_stays(rule: Callable[[ir.Model], Any]) -> None:
    text = QUANTIZED.format(dtype="float", kind="int8", zero=0, result="DequantizeLinear(q, s, z)")
    assert not rule(model(text)).modified


def test_a_weight_with_zero_points() -> None:
    text = """g (float[3,2] x) => (float[3,2] y) <int8[2] w = {1, -2}, float s = {0.5}, int8 z = {3}> {
      d = DequantizeLinear(w, s, z)\n y = Mul(x, d) }"""
    expected = ["Cast", "Sub", "Mul", "Mul"]
    check(model(text), legalize_asymmetric_dequantization, [torch.randn(3, 2)], expected)


@pytest.mark.parametrize(("to", "expected"), [(1, []), (6, ["Cast"])])
def test_the_cast_of_a_weight_dequantizes(to: int, expected: list[str]) -> None:
    """TensorRT takes weights of 8 bits before a DequantizeLinear only."""
    name = {1: "float", 6: "int32"}[to]
    text = (
        f"""g ({name}[3,2] x) => ({name}[3,2] y) <int8[2] w = {{1, -2}}> {{ d = Cast<to={to}>(w)\n y = Mul(x, d) }}"""
    )
    x = torch.ones(3, 2, dtype=torch.float if to == 1 else torch.int32)
    check(model(text), legalize_weight_casts, [x], ["DequantizeLinear", *expected, "Mul"])
