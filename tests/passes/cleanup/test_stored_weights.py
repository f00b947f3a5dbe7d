"""Weights that are stored packed, transposed, or as one part of a weight each."""

import logging

import onnx_ir as ir
import pytest
import torch

from fx_onnx.messages.errors import OnnxExporterError
from fx_onnx.onnx_model.weights import LazyWeight, as_torch
from fx_onnx.passes.cleanup.redundant_nodes import EliminateDeadCode
from fx_onnx.passes.cleanup.stored_weights import (
    fold_weight_selections,
    fold_weight_transposes,
    hoist_quantized_transposes,
    pack_weights,
    transpose_shared_weights,
)
from fx_onnx.passes.rewriter import LOGGER_NAME, walk
from tests.passes.checking import check, model


def test_view_of_the_weight() -> None:
    """The new initializer shares the memory of the old one, which is removed."""
    weight = torch.randn(5, 3)
    program = model("g (float[N,3] x) => (float[N,5] y) { t = Transpose<perm=[1,0]>(fc_weight)\n y = MatMul(x, t) }",
                    {"fc_weight": weight})  # fmt: skip
    check(program, fold_weight_transposes, [torch.randn(2, 3)], ["MatMul"])
    EliminateDeadCode()(program)
    assert list(program.graph.initializers) == ["fc_weight_transposed"]
    tensor = program.graph.initializers["fc_weight_transposed"].const_value
    assert isinstance(tensor, LazyWeight)
    assert tensor._compute().raw.data_ptr() == weight.data_ptr()


def test_equal_transposes_share_a_weight() -> None:
    """Two Transposes with the same permutation, one of them in a branch, become one initializer."""
    text = """g (float[N,3] x, bool c) => (float[N,5] y) {
      t = Transpose(w)
      y = If(c)<
        then_branch = a () => (float[N,5] u) { s = Transpose<perm=[1,0]>(w)\n u = MatMul(x, s) },
        else_branch = b () => (float[N,5] v) { v = MatMul(x, t) }>
    }"""
    program = model(text, {"w": torch.randn(5, 3)})
    for side in (True, False):
        check(program, fold_weight_transposes, [torch.randn(2, 3), torch.tensor(side)], ["If", "MatMul", "MatMul"])
    assert [name for name in program.graph.initializers if name != "w"] == ["w_transposed"]


def test_several_gemms_read_the_transposed_weight() -> None:
    """The weight of one Gemm keeps its layout."""
    text = """g (float[N,3] x) => (float[N,3] z) <float[3] b = {1.0, 2.0, 3.0}> {
      y = Gemm<transB=1>(x, w, b)\n z = Gemm<transB=1, alpha=2.0>(y, w)
    }"""
    program = model(text, {"w": torch.randn(3, 3)})
    check(program, transpose_shared_weights, [torch.randn(2, 3)], ["Gemm", "Gemm"])
    assert [name for name in program.graph.initializers if name.startswith("w_")] == ["w_transposed"]
    assert [sorted(node.attributes) for node in program.graph] == [[], ["alpha"]]
    program = model("g (float[N,3] x) => (float[N,5] y) { y = Gemm<transB=1>(x, w) }", {"w": torch.randn(5, 3)})
    assert not transpose_shared_weights(program).modified
    text = "g (float[N,3] x) => (float[N,3] z) { y = Gemm<transB=1>(x, w)\n z = Gemm(y, w) }"
    assert not transpose_shared_weights(model(text, {"w": torch.randn(3, 3)})).modified


def test_tied_weight_stays() -> None:
    """An embedding that is also the last layer is stored once, so its Transpose stays."""
    text = """g (int64[N] ids) => (float[N,5] y) {
      e = Gather(w, ids)\n t = Transpose<perm=[1,0]>(w)\n y = MatMul(e, t)
    }"""
    program = model(text, {"w": torch.randn(5, 3)})
    check(program, fold_weight_transposes, [torch.tensor([0, 4])], ["Gather", "Transpose", "MatMul"])


def test_result_of_the_graph_stays() -> None:
    """A Transpose stays if the graph returns its result."""
    program = model("g (float[N] x) => (float[N] y, float[3,5] t) { y = Relu(x)\n t = Transpose<perm=[1,0]>(w) }",
                    {"w": torch.randn(5, 3)})  # fmt: skip
    check(program, fold_weight_transposes, [torch.randn(2)], ["Relu", "Transpose"])


x = torch.randn(2, 5)
weight = torch.randint(-128, 128, (3, 5), dtype=torch.int8)
PRODUCT = ["DequantizeLinear", "MatMul"]


def hoist_and_fold(program: ir.Model) -> None:
    walk(program, (hoist_quantized_transposes, fold_weight_transposes))


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


INDICES = "<int64 i0 = {0}, int64 i2 = {-1}>"


def test_views_of_the_weight() -> None:
    """Each slice that is read becomes an initializer that shares the memory of the weight; equal indices share one."""
    weight = torch.randn(3, 4, 5)
    text = f"""g (float[N,4] x) => (float[N,5] y) {INDICES} {{
      a = Gather<axis=0>(w, i0)\n b = Gather<axis=0>(w, i2)\n c = Gather<axis=0>(w, i2)
      xa = MatMul(x, a)\n xb = MatMul(x, b)\n xc = MatMul(x, c)\n s = Add(xa, xb)\n y = Sub(s, xc)
    }}"""
    program = model(text, {"w": weight})
    check(program, fold_weight_selections, [torch.randn(2, 4)], ["Add", "MatMul", "MatMul", "MatMul", "Sub"])
    EliminateDeadCode()(program)
    assert list(program.graph.initializers) == ["w.0", "w.2"]
    last = program.graph.initializers["w.2"].const_value
    assert isinstance(last, LazyWeight)
    assert last.values().data_ptr() == weight[2].data_ptr()


def test_pieces_of_a_large_slice() -> None:
    """A slice is read in pieces, along its own axes."""
    program = model(f"g (float[6] x) => (float[6] y) {INDICES} {{ a = Gather(w, i2)\n y = Add(x, a) }}",
                    {"w": torch.arange(12.0).reshape(2, 6)})  # fmt: skip
    fold_weight_selections(program)
    tensor = program.graph.initializers["w.1"].const_value
    assert isinstance(tensor, LazyWeight)
    assert tensor.part({0: (1, 3)}).tolist() == [7.0, 8.0]


def test_declined() -> None:
    """Something else reads the weight, the graph returns a slice, the axis is another one, or the index is a vector."""
    weights = {"w": torch.randn(3, 4)}
    for text in (
        "a = Gather(w, i0)\n b = Add(x, a)\n c = MatMul(w, b)\n y = ReduceSum(c)",
        "y = Gather(w, i0)",
        "a = Gather<axis=1>(w, i0)\n y = ReduceSum(a)",
        "v = Constant<value_ints=[0]>()\n a = Gather(w, v)\n y = Add(a, x)",
    ):
        program = model(f"g (float[4] x) => (float y) {INDICES} {{ {text} }}", weights)
        assert not fold_weight_selections(program).modified, text


TEXT = """g (float[N,6] x) => (float[N,3] y) {
  q = Cast<to=22>(w)
  d = DequantizeLinear<axis=1, block_size=2>(q, s)
  t = Transpose<perm=[1,0]>(d)
  y = MatMul(x, t)
}"""
OPERATORS = ["DequantizeLinear", "Transpose", "MatMul"]


def test_packed_when_saved() -> None:
    """A 4-bit weight takes half the bytes of an 8-bit one and has the same values."""
    weight = torch.randint(-8, 8, (3, 6), dtype=torch.int8)
    program = model(TEXT, {"w": weight, "s": torch.rand(3, 3)}, opset=21)
    check(program, pack_weights, [torch.randn(2, 6)], OPERATORS)
    EliminateDeadCode()(program)
    packed = program.graph.initializers["w_packed"].const_value
    assert packed is not None and (packed.dtype, packed.nbytes) == (ir.DataType.INT4, 9)
    assert torch.equal(as_torch(packed), weight)
    assert "w" not in program.graph.initializers


def test_unsigned() -> None:
    text = TEXT.replace("to=22", "to=21")
    program = model(text, {"w": torch.randint(0, 16, (3, 6), dtype=torch.uint8), "s": torch.rand(3, 3)}, opset=21)
    check(program, pack_weights, [torch.randn(2, 6)], OPERATORS)
    assert program.graph.initializers["w_packed"].dtype == ir.DataType.UINT4


def test_saving_a_value_out_of_range_fails() -> None:
    program = model(TEXT, {"w": torch.full((3, 6), 9, dtype=torch.int8), "s": torch.rand(3, 3)}, opset=21)
    pack_weights(program)
    packed = program.graph.initializers["w_packed"].const_value
    assert packed is not None
    with pytest.raises(OnnxExporterError, match="'w_packed' has values outside"):
        packed.tobytes()


def test_casts_of_other_values_stay() -> None:
    text = "g (int8[N] x) => (float[N] y) { q = Cast<to=22>(x)\n y = DequantizeLinear(q, s) }"
    program = model(text, {"s": torch.tensor(0.5)}, opset=21)
    check(program, pack_weights, [torch.tensor([1, -8], dtype=torch.int8)], ["Cast", "DequantizeLinear"])


def test_a_weight_that_the_graph_returns_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An initializer is not an output of the graph, so the Cast stays."""
    program = model("g (float[N] x) => (int4[3] y) { y = Cast<to=22>(w) }", {"w": torch.ones(3).to(torch.int8)}, 21)
    with caplog.at_level(logging.DEBUG, logger=LOGGER_NAME):
        assert not pack_weights(program).modified
    assert "pack_weights declines Cast y: the graph returns its result" in caplog.text
