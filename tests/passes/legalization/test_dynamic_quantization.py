"""QuantizeLinear with a computed scale as arithmetic."""

import pytest
import torch

from fx_onnx.passes.legalization.dynamic_quantization import (
    legalize_dequantization,
    legalize_dynamic_quantization,
    legalize_quantization,
)
from tests.passes.checking import check, model

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


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_pair_stays_in_floats(dtype: str) -> None:
    """The integer between the two operators is not computed, and the zero points are constants: there is no Cast."""
    text = f"""g (float[A,B,C] x) => (float[A,B,C] y) <float s = {{0.5}}, {dtype} z = {{7}}> {{
      q = QuantizeLinear(x, s, z)\n y = DequantizeLinear(q, s, z)
    }}"""
    expected = ["Div", "Round", "Add", "Clip", "Sub", "Mul"]
    check(model(text), legalize_dequantization, [X], expected)
