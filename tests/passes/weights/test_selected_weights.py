"""Folding of constant indices into weights."""

import torch

from fx_onnx.core.weights import LazyWeight
from fx_onnx.passes.cleanup.dead_code import EliminateDeadCode
from fx_onnx.passes.weights.selected_weights import FoldWeightSelections
from tests.passes.checking import check, model

INDICES = "<int64 i0 = {0}, int64 i2 = {-1}>"


def test_views_of_the_weight() -> None:
    """Each slice that is read becomes an initializer that shares the memory of the weight; equal indices share one."""
    weight = torch.randn(3, 4, 5)
    text = f"""g (float[N,4] x) => (float[N,5] y) {INDICES} {{
      a = Gather<axis=0>(w, i0)\n b = Gather<axis=0>(w, i2)\n c = Gather<axis=0>(w, i2)
      xa = MatMul(x, a)\n xb = MatMul(x, b)\n xc = MatMul(x, c)\n s = Add(xa, xb)\n y = Sub(s, xc)
    }}"""
    program = model(text, {"w": weight})
    check(program, FoldWeightSelections(), [torch.randn(2, 4)], ["Add", "MatMul", "MatMul", "MatMul", "Sub"])
    EliminateDeadCode()(program)
    assert list(program.graph.initializers) == ["w.0", "w.2"]
    last = program.graph.initializers["w.2"].const_value
    assert isinstance(last, LazyWeight)
    assert last.values().data_ptr() == weight[2].data_ptr()


def test_pieces_of_a_large_slice() -> None:
    """A slice is read in pieces, along its own axes."""
    program = model(f"g (float[6] x) => (float[6] y) {INDICES} {{ a = Gather(w, i2)\n y = Add(x, a) }}",
                    {"w": torch.arange(12.0).reshape(2, 6)})  # fmt: skip
    FoldWeightSelections()(program)
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
        assert not FoldWeightSelections()(program).modified, text
