"""Folding of Transposes into weights."""

import torch

from fx_onnx.core.weights import LazyWeight
from fx_onnx.passes.cleanup.dead_code import EliminateDeadCode
from fx_onnx.passes.weights.transposed_weights import FoldWeightTransposes, TransposeSharedWeights
from tests.passes.checking import check, model


def test_view_of_the_weight() -> None:
    """The new initializer shares the memory of the old one, which is removed."""
    weight = torch.randn(5, 3)
    program = model("g (float[N,3] x) => (float[N,5] y) { t = Transpose<perm=[1,0]>(fc_weight)\n y = MatMul(x, t) }",
                    {"fc_weight": weight})  # fmt: skip
    check(program, FoldWeightTransposes(), [torch.randn(2, 3)], ["MatMul"])
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
        check(program, FoldWeightTransposes(), [torch.randn(2, 3), torch.tensor(side)], ["If", "MatMul", "MatMul"])
    assert [name for name in program.graph.initializers if name != "w"] == ["w_transposed"]


def test_several_gemms_read_the_transposed_weight() -> None:
    """The weight of one Gemm keeps its layout."""
    text = """g (float[N,3] x) => (float[N,3] z) <float[3] b = {1.0, 2.0, 3.0}> {
      y = Gemm<transB=1>(x, w, b)\n z = Gemm<transB=1, alpha=2.0>(y, w)
    }"""
    program = model(text, {"w": torch.randn(3, 3)})
    check(program, TransposeSharedWeights(), [torch.randn(2, 3)], ["Gemm", "Gemm"])
    assert [name for name in program.graph.initializers if name.startswith("w_")] == ["w_transposed"]
    assert [sorted(node.attributes) for node in program.graph] == [[], ["alpha"]]
    program = model("g (float[N,3] x) => (float[N,5] y) { y = Gemm<transB=1>(x, w) }", {"w": torch.randn(5, 3)})
    assert not TransposeSharedWeights()(program).modified
    text = "g (float[N,3] x) => (float[N,3] z) { y = Gemm<transB=1>(x, w)\n z = Gemm(y, w) }"
    assert not TransposeSharedWeights()(model(text, {"w": torch.randn(3, 3)})).modified


def test_tied_weight_stays() -> None:
    """An embedding that is also the last layer is stored once, so its Transpose stays."""
    text = """g (int64[N] ids) => (float[N,5] y) {
      e = Gather(w, ids)\n t = Transpose<perm=[1,0]>(w)\n y = MatMul(e, t)
    }"""
    program = model(text, {"w": torch.randn(5, 3)})
    check(program, FoldWeightTransposes(), [torch.tensor([0, 4])], ["Gather", "Transpose", "MatMul"])


def test_result_of_the_graph_stays() -> None:
    """A Transpose stays if the graph returns its result."""
    program = model("g (float[N] x) => (float[N] y, float[3,5] t) { y = Relu(x)\n t = Transpose<perm=[1,0]>(w) }",
                    {"w": torch.randn(5, 3)})  # fmt: skip
    check(program, FoldWeightTransposes(), [torch.randn(2)], ["Relu", "Transpose"])
