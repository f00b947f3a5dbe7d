"""Hoisting of Transposes over DequantizeLinear and Cast."""

import onnx_ir as ir
import torch

from fx_onnx.passes.rewriter import walk
from fx_onnx.passes.weights.quantized_transposes import HoistQuantizedTransposes
from fx_onnx.passes.weights.transposed_weights import FoldWeightTransposes
from tests.passes.checking import check, model

x = torch.randn(2, 5)
weight = torch.randint(-128, 128, (3, 5), dtype=torch.int8)
PRODUCT = ["DequantizeLinear", "MatMul"]


def hoist_and_fold(program: ir.Model) -> None:
    walk(program, (HoistQuantizedTransposes(), FoldWeightTransposes()))


def text(dequantize: str) -> str:
    return f"""g (float[N,5] x) => (float[N,3] y) {{
      d = {dequantize}\n t = Transpose<perm=[1,0]>(d)\n y = MatMul(x, t)
    }}"""


def test_a_scale_for_each_row() -> None:
    """A scale for each row becomes one for each column."""
    weights = {"w": weight, "s": torch.rand(3), "z": torch.tensor([0, 3, -5], dtype=torch.int8)}
    program = model(text("DequantizeLinear<axis=-2>(w, s, z)"), weights)
    check(program, hoist_and_fold, [x], PRODUCT)
    node = next(node for node in program.graph if node.op_type == "DequantizeLinear")
    assert node.attributes["axis"].as_int() == 1
    assert node.inputs[0] is not None and node.inputs[0].name == "w_transposed"


def test_one_scale() -> None:
    check(model(text("DequantizeLinear(w, s)"), {"w": weight, "s": torch.tensor(0.1)}), hoist_and_fold, [x], PRODUCT)


def test_a_scale_for_each_block() -> None:
    """Scales and zero points are transposed with the weight."""
    weights = {"w": weight[:, :4], "s": torch.rand(3, 2), "z": torch.randint(-3, 3, (3, 2), dtype=torch.int8)}
    dequantize = text("DequantizeLinear<axis=1, block_size=2>(w, s, z)").replace("N,5", "N,4")
    check(model(dequantize, weights, opset=21), hoist_and_fold, [torch.randn(2, 4)], PRODUCT)


def test_a_cast() -> None:
    check(model(text("Cast<to=1>(w)"), {"w": weight}), hoist_and_fold, [x], ["Cast", "MatMul"])


def test_a_tied_weight_is_declined() -> None:
    """A quantized embedding that is also the last layer is stored once."""
    tied = """g (int64[N] ids) => (float[N,3] y) {
      r = Gather(w, ids)\n e = DequantizeLinear(r, s)
      d = DequantizeLinear(w, s)\n t = Transpose<perm=[1,0]>(d)\n y = MatMul(e, t)
    }"""
    program = model(tied, {"w": weight, "s": torch.tensor(0.1)})
    kept = ["Gather", "DequantizeLinear", "DequantizeLinear", "Transpose", "MatMul"]
    check(program, hoist_and_fold, [torch.tensor([0, 2])], kept)


def test_values_that_are_not_weights_are_declined() -> None:
    program = model("g (float[3,5] x) => (float[5,3] y) { d = Cast<to=11>(x)\n t = Transpose<perm=[1,0]>(d)\n"
                    " y = Cast<to=1>(t) }")  # fmt: skip
    check(program, hoist_and_fold, [torch.randn(3, 5)], ["Cast", "Transpose", "Cast"])
