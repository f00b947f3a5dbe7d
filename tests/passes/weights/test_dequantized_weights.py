"""Fusion of quantized weights and their scales into DequantizeLinear."""

import pytest
import torch

from fx_onnx.passes.weights.dequantized_weights import FuseDequantizeLinear
from tests.passes.checking import check, model

x = torch.randn(2, 5)
weight = torch.randint(-128, 128, (5, 3), dtype=torch.int8)
scaled = """g (float[N,5] x) => (float[N,3] y) { c = Cast<to=1>(w)\n d = Mul(c, s)\n y = MatMul(x, d) }"""
after = """g (float[N,5] x) => (float[N,3] y) { c = Cast<to=1>(w)\n p = MatMul(x, c)\n y = Mul(p, s) }"""
PRODUCT = ["DequantizeLinear", "MatMul"]


@pytest.mark.parametrize("sizes", [(), (1,), (1, 1), (3,), (1, 3), (5, 1)])
def test_scaled_weight(sizes: tuple[int, ...]) -> None:
    """One scale for the weight, for each row, or for each column."""
    check(model(scaled, {"w": weight, "s": torch.rand(sizes)}), FuseDequantizeLinear(), [x], PRODUCT)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float8_e4m3fn, torch.float8_e5m2])
def test_other_dtypes(dtype: torch.dtype) -> None:
    weights = {"w": torch.randint(0, 100, (5, 3)).to(dtype), "s": torch.rand(3)}
    check(model(scaled, weights), FuseDequantizeLinear(), [x], PRODUCT)


@pytest.mark.parametrize("sizes", [(), (1,), (3,), (1, 3)])
def test_scaled_product(sizes: tuple[int, ...]) -> None:
    """A scale for the columns of a product becomes a scale for the columns of the weight."""
    check(model(after, {"w": weight, "s": torch.rand(sizes)}), FuseDequantizeLinear(), [x], PRODUCT)


def test_scaled_gemm() -> None:
    """With transB the columns of the product are the rows of the weight."""
    text = after.replace("MatMul(x, c)", "Gemm<transB=1>(x, c)")
    weights = {"w": weight.t().contiguous(), "s": torch.rand(3)}
    check(model(text, weights), FuseDequantizeLinear(), [x], ["DequantizeLinear", "Gemm"])


KEPT = ["Cast", "Mul", "MatMul"]


@pytest.mark.parametrize("sizes", [(5, 3), (2, 1), (2, 1, 1)])
def test_other_scales_are_declined(sizes: tuple[int, ...]) -> None:
    """A scale for each element, for each row of the product, and one that widens the product."""
    text = (
        scaled
        if sizes == (5, 3)
        else after.replace("float[N,3] y", "float[2,2,3] y" if len(sizes) == 3 else "float[2,3] y")
    )
    check(model(text, {"w": weight, "s": torch.rand(sizes)}), FuseDequantizeLinear(), [x], KEPT)


def test_a_gemm_with_an_addend_is_declined() -> None:
    """The scale applies to the addend too, but DequantizeLinear would not scale it."""
    text = after.replace("MatMul(x, c)", "Gemm(x, c, b)")
    weights = {"w": weight, "s": torch.rand(3), "b": torch.rand(3)}
    check(model(text, weights), FuseDequantizeLinear(), [x], ["Cast", "Gemm", "Mul"])


def test_wider_integers_are_declined() -> None:
    check(model(scaled, {"w": weight.int(), "s": torch.rand(3)}), FuseDequantizeLinear(), [x], KEPT)


def test_a_cast_with_another_consumer_is_declined() -> None:
    text = scaled.replace("y = MatMul(x, d)", "e = Add(c, d)\n y = MatMul(x, e)")
    check(model(text, {"w": weight, "s": torch.rand(3)}), FuseDequantizeLinear(), [x], ["Add", *KEPT])
