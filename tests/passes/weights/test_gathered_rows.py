"""Rows of quantized embeddings are gathered before they are dequantized."""

import onnx_ir as ir
import pytest
import torch

from fx_onnx.passes.rewriter import walk
from fx_onnx.passes.weights.gathered_rows import GatherQuantizedRows
from tests.passes.checking import check, model

weight = torch.randint(-128, 128, (6, 8), dtype=torch.int8)
ids = torch.tensor([[0, 5, -1], [2, 2, 3]])
BY_ROW = ["Reshape", "Gather", "Cast", "Gather", "Mul"]
BY_BLOCK = ["Reshape", "Gather", "Cast", "Reshape", "Gather", "Mul", "Reshape"]
ZERO = ["Reshape", "Gather", "Cast", "Sub"]
KEPT = ["DequantizeLinear", "Gather"]


def gather_rows(program: ir.Model) -> None:
    walk(program, (GatherQuantizedRows(),))


def text(dequantize: str, axis: int = 0) -> str:
    return f"""g (int64[A,B] i) => (float[C,D,E] y) {{
      d = {dequantize}\n y = Gather<axis={axis}>(d, i)
    }}"""


def zeros(*shape: int) -> torch.Tensor:
    return torch.randint(-9, 9, shape, dtype=torch.int8)


@pytest.mark.parametrize("indices", [ids, ids[:, :0]], ids=["rows", "no rows"])
def test_a_scale_for_each_row(indices: torch.Tensor) -> None:
    dequantize = text("DequantizeLinear<axis=-2>(w, s, z)")
    program = model(dequantize, {"w": weight, "s": torch.rand(6), "z": zeros(6)})
    check(program, gather_rows, [indices], BY_ROW + ZERO, tolerance=0)
    check(model(text("DequantizeLinear<axis=0>(w, s)"), {"w": weight, "s": torch.rand(6)}), gather_rows, [ids], BY_ROW)


@pytest.mark.parametrize("indices", [ids, ids[:, :0]], ids=["rows", "no rows"])
def test_a_scale_for_each_block(indices: torch.Tensor) -> None:
    dequantize = text("DequantizeLinear<axis=1, block_size=4>(w, s, z)")
    program = model(dequantize, {"w": weight, "s": torch.rand(6, 2), "z": zeros(6, 2)}, opset=21)
    check(program, gather_rows, [indices], BY_BLOCK + ZERO, tolerance=0)


def test_blocks_that_are_rows_of_a_taller_matrix() -> None:
    """Opsets below 21 have no blocks."""
    blocks = """g (int64[A,B] i) => (float[C,D,E] y) {
      shape = Constant<value_ints=[6,8]>()
      d = DequantizeLinear<axis=0>(w, s)\n r = Reshape(d, shape)\n y = Gather(r, i)
    }"""
    program = model(blocks, {"w": weight.reshape(12, 4), "s": torch.rand(12)})
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
    check(model(text(dequantize, axis), {"w": weight, "s": torch.rand(scales)}), gather_rows, [indices], KEPT)


def test_the_weight_of_a_product_too_stays_for_the_product() -> None:
    """A quantized embedding that is also the last layer."""
    tied = """g (int64[N] i, float[M,8] x) => (float[N,8] y, float[M,6] p) {
      d = DequantizeLinear<axis=0>(w, s)\n y = Gather(d, i)\n t = Transpose<perm=[1,0]>(d)\n p = MatMul(x, t)
    }"""
    program = model(tied, {"w": weight, "s": torch.rand(6)})
    inputs = [torch.tensor([0, 2]), torch.randn(3, 8)]
    check(program, gather_rows, inputs, [*BY_ROW, "DequantizeLinear", "Transpose", "MatMul"])
