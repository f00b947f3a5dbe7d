"""Fusion of products with quantized weights into MatMulNBits."""

import onnx_ir as ir
import pytest
import torch

from fx_onnx.passes.cleanup.stored_weights import pack_weights
from fx_onnx.quantized_weights.nbits_products import FuseMatMulNBits
from tests.compare import assert_close
from tests.passes.checking import check, model, run

X = torch.randn(2, 3, 64)
IN_HALVES = ["MatMulNBits", "Split", "Add"]
"""A product in float32 with a weight of 8 bits: its upper and lower halves are columns of one weight of 4 bits."""
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
    check(product("int8", scales, attributes, zero=zero), FuseMatMulNBits(), [X], IN_HALVES, 1e-5)
    with_rounding = FuseMatMulNBits(accuracy_level=4)
    check(product("int8", scales, attributes, zero=zero), with_rounding, [X], ["MatMulNBits"], 0.05)


@pytest.mark.parametrize(
    ("scales", "attributes"), [((4, 6), BLOCKS), ((1, 6), ", axis=0, block_size=64"), ((6,), "axis=1")]
)
def test_a_weight_of_4_bits(scales: tuple[int, ...], attributes: str) -> None:
    """The elements are packed in pairs along the rows, and the zeros of a column too."""
    weight, zero = (torch.randint(-8, 8, sizes, dtype=torch.int8) for sizes in ((64, 6), scales))
    scale = torch.rand(scales) + 0.1
    text = f"""g (float[N,L,64] x) => (float[N,L,6] y) {{ w4 = Cast<to=22>(w)\n z4 = Cast<to=22>(z)
      d = DequantizeLinear<{attributes.lstrip(", ")}>(w4, s, z4)\n y = MatMul(x, d)\n }}"""
    program = model(text, {"w": weight, "s": scale, "z": zero}, opset=23)
    assert pack_weights(program).modified
    assert FuseMatMulNBits()(program).modified
    assert [node.op_type for node in program.graph] == ["MatMulNBits"]
    whole = [each if each.ndim == 1 else each.repeat_interleave(64 // len(each), 0) for each in (scale, zero)]
    assert_close(run(program, [X])[0], X @ ((weight - whole[1].float()) * whole[0]), 1e-5)


@pytest.mark.parametrize(
    ("scales", "attributes"), [((6, 4), "axis=1, block_size=16"), ((6,), "axis=0"), ((), "axis=0"), ((4, 6), BLOCKS)]
)
@pytest.mark.parametrize("bias", ["", ", b"])
def test_a_gemm(scales: tuple[int, ...], attributes: str, bias: str) -> None:
    """A Linear of a matrix: the weight has the layout of the module, except with blocks along the first axis."""
    sizes, transposed = ((64, 6), 0) if attributes == BLOCKS else ((6, 64), 1)
    weights = {"w": torch.randint(-128, 128, sizes).to(torch.int8), "s": torch.rand(scales) + 0.1, "b": torch.randn(6)}
    weights["z"] = torch.randint(-128, 128, scales).to(torch.int8)
    text = f"""g (float[N,64] x) => (float[N,6] y) {{
      d = DequantizeLinear<{attributes.lstrip(", ")}>(w, s, z)\n y = Gemm<transB={transposed}>(x, d{bias}) }}"""
    program = model(text, weights, opset=23)
    check(program, FuseMatMulNBits(), [X[0]], IN_HALVES + ["Add"] * bool(bias), 1e-5)
    assert {"w_nbits", "w_scales", "w_zeros"} <= set(program.graph.initializers)


@pytest.mark.parametrize("attributes", ["transA=1", "alpha=0.5", "beta=2.0"])
def test_a_gemm_that_does_more_is_declined(attributes: str) -> None:
    weights = {"w": torch.zeros(64, 64, dtype=torch.int8), "s": torch.ones(()), "b": torch.randn(64)}
    text = f"""g (float[64,64] x) => (float[64,64] y) {{
      d = DequantizeLinear(w, s)\n y = Gemm<{attributes}>(x, d, b) }}"""
    assert not FuseMatMulNBits()(model(text, weights, opset=23)).modified


def test_an_unsigned_weight_needs_zeros() -> None:
    """Without zeros, those of MatMulNBits are the middle of the range."""
    check(product("uint8", (4, 6), BLOCKS), FuseMatMulNBits(), [X], IN_HALVES, 1e-5)
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


PRODUCTS = """g (float[N,L,64] x) => (float[N,L,6] a, float[N,L,4] b, float[N,L,4] c) {{
  r = Relu(x)\n d = DequantizeLinear<axis=0, block_size=16>(w, s)\n a = MatMul(r, d)
  d2 = DequantizeLinear<axis=0, block_size=16>(w2, s2)\n b = MatMul(r, d2)
  d3 = DequantizeLinear<axis=0, block_size={block}>(w3, s3)\n c = MatMul(r, d3)\n }}"""


@pytest.mark.parametrize(("block", "operators"), [(16, IN_HALVES), (32, IN_HALVES * 2)])
def test_products_of_one_operand_are_joined(block: int, operators: list[str]) -> None:
    """The columns of weights of equal form are joined, also where the graph returns the products."""
    weights = {
        name: torch.randint(-128, 128, (64, columns), dtype=torch.int8)
        for name, columns in (("w", 6), ("w2", 4), ("w3", 4))
    }
    scales = {"s": torch.rand(4, 6), "s2": torch.rand(4, 4), "s3": torch.rand(64 // block, 4)}
    text = PRODUCTS.format(block=block)
    check(model(text, weights | scales, 23), FuseMatMulNBits(), [X], ["Relu", "Split", *operators], 1e-5)


def test_products_of_an_input_of_the_graph_are_joined() -> None:
    weights = {"w": torch.ones(64, 6, dtype=torch.int8), "s": torch.rand(6), "t": torch.rand(6)}
    text = """g (float[N,64] x) => (float[N,6] a, float[N,6] b) {
      d = DequantizeLinear<axis=1>(w, s)\n e = DequantizeLinear<axis=1>(w, t)\n a = MatMul(x, d)\n b = MatMul(x, e) }"""
    check(model(text, weights, 23), FuseMatMulNBits(), [X[:, 0]], ["Split", *IN_HALVES], 1e-5)
