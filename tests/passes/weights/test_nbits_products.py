"""Fusion of products with quantized weights into MatMulNBits."""

import onnx_ir as ir
import pytest
import torch

from fx_onnx.passes.weights.nbits_products import FuseMatMulNBits
from tests.passes.checking import check, model

X = torch.randn(2, 3, 64)
BLOCKS = ", axis=0, block_size=16"


def product(bits: str, scales: tuple[int, ...], attributes: str, *, zero: bool = True, more: str = "") -> ir.Model:
    """Returns a product with a quantized weight of 64 rows and 6 columns."""
    dtype = getattr(torch, bits)
    low, high = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    weights = {"w": torch.randint(low, high + 1, (64, 6)).to(dtype), "s": torch.rand(scales) + 0.1}
    weights["z"] = torch.randint(low, high + 1, scales).to(dtype)
    return model(
        f"""g (float[N,L,64] x) => (float[N,L,6] y) {{
      d = DequantizeLinear<{attributes.lstrip(", ")}>(w, s{", z" if zero else ""})\n y = MatMul(x, d)\n {more} }}""",
        weights,
        opset=23,
    )


@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize(("scales", "attributes"), [((4, 6), BLOCKS), ((6,), "axis=1"), ((), "axis=1")])
def test_a_weight_of_8_bits(scales: tuple[int, ...], attributes: str, zero: bool) -> None:
    """A scale for each block, for each column, and one for all; with zeros and without."""
    check(product("int8", scales, attributes, zero=zero), FuseMatMulNBits(), [X], ["MatMulNBits"], 1e-5)


def test_an_unsigned_weight_needs_zeros() -> None:
    """Without zeros, those of MatMulNBits are the middle of the range."""
    check(product("uint8", (4, 6), BLOCKS), FuseMatMulNBits(), [X], ["MatMulNBits"], 1e-5)
    assert not FuseMatMulNBits()(product("uint8", (4, 6), BLOCKS, zero=False)).modified


@pytest.mark.parametrize(
    "program",
    [
        product("int8", (8, 6), ", axis=0, block_size=8"),
        product("int8", (64, 1), ", axis=1, block_size=6"),
        product("int8", (64,), "axis=0"),
        product("int8", (4, 6), BLOCKS, more="z2 = Neg(d)\n"),
    ],
)
def test_declined(program: ir.Model) -> None:
    """Small blocks, blocks of columns, a scale for each row, and another reader."""
    assert not FuseMatMulNBits()(program).modified
