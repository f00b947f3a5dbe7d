"""Fusion of quantized weights and their scales into DequantizeLinear, and reads of rows."""

import onnx_ir as ir
import pytest
import torch

from fx_onnx.passes.rewriter import walk
from fx_onnx.quantized_weights.dequantized_weights import fuse_dequantize_linear, gather_quantized_rows
from tests.passes.checking import check, model

x = torch.randn(2, 5)
weight = torch.randint(-128, 128, (5, 3), dtype=torch.int8)
scaled = """g (float[N,5] x) => (float[N,3] y) { c = Cast<to=1>(w)\n d = Mul(c, s)\n y = MatMul(x, d) }"""
after = """g (float[N,5] x) => (float[N,3] y) { c = Cast<to=1>(w)\n p = MatMul(x, c)\n y = Mul(p, s) }"""
PRODUCT = ["DequantizeLinear", "MatMul"]


@pytest.mark.parametrize("sizes", [(), (1,), (1, 1), (3,), (1, 3), (5, 1)])
def test_scaled_weight(sizes: tuple[int, ...]) -> None:
    """One scale for the weight, for each row, or for each column."""
    check(model(scaled, {"w": weight, "s": torch.rand(sizes)}), fuse_dequantize_linear, [x], PRODUCT)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float8_e4m3fn, torch.float8_e5m2])
def test_other_dtypes(dtype: torch.dtype) -> None:
    weights = {"w": torch.randint(0, 100, (5, 3)).to(dtype), "s": torch.rand(3)}
    check(model(scaled, weights), fuse_dequantize_linear, [x], PRODUCT)


@pytest.mark.parametrize("sizes", [(), (1,), (3,), (1, 3)])
def test_scaled_product(sizes: tuple[int, ...]) -> None:
    """A scale for the columns of a product becomes a scale for the columns of the weight."""
    check(model(after, {"w": weight, "s": torch.rand(sizes)}), fuse_dequantize_linear, [x], PRODUCT)


def test_scaled_gemm() -> None:
    """With transB the columns of the product are the rows of the weight."""
    text = after.replace("MatMul(x, c)", "Gemm<transB=1>(x, c)")
    weights = {"w": weight.t().contiguous(), "s": torch.rand(3)}
    check(model(text, weights), fuse_dequantize_linear, [x], ["DequantizeLinear", "Gemm"])


KEPT = ["Cast", "Mul", "MatMul"]


@pytest.mark.parametrize("sizes", [(5, 3), (2, 1), (2, 1, 1)])
def test_other_scales_are_declined(sizes: tuple[int, ...]) -> None:
    """A scale for each element, for each row of the product, and one that widens the product."""
    text = (
        scaled
        if sizes == (5, 3)
        else after.replace("float[N,3] y", "float[2,2,3] y" if len(sizes) == 3 else "float[2,3] y")
    )
    check(model(text, {"w": weight, "s": torch.rand(sizes)}), fuse_dequantize_linear, [x], KEPT)


def test_a_gemm_with_an_addend_is_declined() -> None:
    """The scale applies to the addend too, but DequantizeLinear would not scale it."""
    text = after.replace("MatMul(x, c)", "Gemm(x, c, b)")
    weights = {"w": weight, "s": torch.rand(3), "b": torch.rand(3)}
    check(model(text, weights), fuse_dequantize_linear, [x], ["Cast", "Gemm", "Mul"])


def test_wider_integers_are_declined() -> None:
    check(model(scaled, {"w": weight.int(), "s": torch.rand(3)}), fuse_dequantize_linear, [x], KEPT)


def test_a_cast_with_another_consumer_is_declined() -> None:
    text = scaled.replace("y = MatMul(x, d)", "e = Add(c, d)\n y = MatMul(x, e)")
    check(model(text, {"w": weight, "s": torch.rand(3)}), fuse_dequantize_linear, [x], ["Add", *KEPT])


table = torch.randint(-128, 128, (6, 8), dtype=torch.int8)
ids = torch.tensor([[0, 5, -1], [2, 2, 3]])
BY_ROW = ["Reshape", "Gather", "Cast", "Gather", "Mul"]
BY_BLOCK = ["Reshape", "Gather", "Cast", "Reshape", "Gather", "Mul", "Reshape"]
ZERO = ["Reshape", "Gather", "Cast", "Sub"]
FOUR_BITS = ["DequantizeLinear", "Gather"]


def gather_rows(program: ir.Model) -> None:
    walk(program, (gather_quantized_rows,))


def text(dequantize: str, axis: int = 0) -> str:
    return f"""g (int64[A,B] i) => (float[C,D,E] y) {{
      d = {dequantize}\n y = Gather<axis={axis}>(d, i)
    }}"""


def zeros(*shape: int) -> torch.Tensor:
    return torch.randint(-9, 9, shape, dtype=torch.int8)


@pytest.mark.parametrize("indices", [ids, ids[:, :0]], ids=["rows", "no rows"])
def test_a_scale_for_each_row(indices: torch.Tensor) -> None:
    dequantize = text("DequantizeLinear<axis=-2>(w, s, z)")
    program = model(dequantize, {"w": table, "s": torch.rand(6), "z": zeros(6)})
    check(program, gather_rows, [indices], BY_ROW + ZERO, tolerance=0)
    check(
        model(text("DequantizeLinear<axis=0>(w, s)"), {"w": table, "s": torch.rand(6)}),
        gather_rows,
        [ids],
        BY_ROW,
    )


@pytest.mark.parametrize("indices", [ids, ids[:, :0]], ids=["rows", "no rows"])
def test_a_scale_for_each_block(indices: torch.Tensor) -> None:
    dequantize = text("DequantizeLinear<axis=1, block_size=4>(w, s, z)")
    program = model(dequantize, {"w": table, "s": torch.rand(6, 2), "z": zeros(6, 2)}, opset=21)
    check(program, gather_rows, [indices], BY_BLOCK + ZERO, tolerance=0)


def test_blocks_that_are_rows_of_a_taller_matrix() -> None:
    """Opsets below 21 have no blocks."""
    blocks = """g (int64[A,B] i) => (float[C,D,E] y) {
      shape = Constant<value_ints=[6,8]>()
      d = DequantizeLinear<axis=0>(w, s)\n r = Reshape(d, shape)\n y = Gather(r, i)
    }"""
    program = model(blocks, {"w": table.reshape(12, 4), "s": torch.rand(12)})
    check(program, gather_rows, [ids], BY_BLOCK, tolerance=0)


@pytest.mark.parametrize(
    ("dequantize", "scales", "axis"),
    [
        ("DequantizeLinear<axis=1>(w, s)", (8,), 0),  # a scale for each column
        ("DequantizeLinear(w, s)", (), 0),
        ("DequantizeLinear<axis=0>(w, s)", (6,), 1),
    ],
)
def test_other_tables_are_declined(dequantize: str, scales: tuple[int, ...], axis: int) -> None:
    indices = ids.clamp(0, 5)
    check(model(text(dequantize, axis), {"w": table, "s": torch.rand(scales)}), gather_rows, [indices], FOUR_BITS)


def test_the_weight_of_a_product_too_stays_for_the_product() -> None:
    """A quantized embedding that is also the last layer."""
    tied = """g (int64[N] i, float[M,8] x) => (float[N,8] y, float[M,6] p) {
      d = DequantizeLinear<axis=0>(w, s)\n y = Gather(d, i)\n t = Transpose<perm=[1,0]>(d)\n p = MatMul(x, t)
    }"""
    program = model(tied, {"w": table, "s": torch.rand(6)})
    inputs = [torch.tensor([0, 2]), torch.randn(3, 8)]
    check(program, gather_rows, inputs, [*BY_ROW, "DequantizeLinear", "Transpose", "MatMul"])
