"""Shapes of one node's outputs from its schema, its operands and constants."""

import onnx_ir as ir
import pytest

from fx_onnx.passes.shape_inference import infer_shapes
from tests.passes.checking import model

CONSTANTS = "<int64[2] rows = {0, -1}, int64[1] one = {1}, int64[1] two = {2}, int64[1] axis = {0}>"


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("y = Tanh(x)", [["n", 3]]),
        ("y = Add(x, v)", [["n", 3]]),
        ("y = MatMul(x, w)", [["n", 5]]),
        ("y = Transpose<perm=[1, 0]>(x)", [[3, "n"]]),
        ("y = Unsqueeze(x, axis)", [[1, "n", 3]]),
        ("y = Reshape(x, rows)", [["n", 3]]),
        ("y = Slice(v, one, two)", [[1]]),
        ("y = Shape(x)", [[2]]),
        ("y = Reshape(x, computed)", [[None, None]]),
        ("y = Expand(v, computed)", [[None, 3]]),
        ("y = ReduceSum<keepdims=0>(x, axis)", [[3]]),
        ("y, z = Split<axis=1, num_outputs=2>(x)", [["n", 2], ["n", 1]]),
        ("y = Unknown(x)", [None]),
        ("y = IsNaN(one)", [None]),  # of int64
    ],
)
def test_shapes(text: str, shapes: list[list[int | str | None] | None]) -> None:
    inputs = "float[n,3] x, float[3] v, float[3,5] w, int64[2] computed"
    graph = model(f"g ({inputs}) => (float y) {CONSTANTS} {{ {text} }}").graph
    found = infer_shapes(graph[-1], 20)
    assert [
        None if each is None else [d.value if isinstance(d, ir.SymbolicDim) else d for d in each] for each in found
    ] == shapes


def test_a_constant_that_a_caller_may_override_is_not_read() -> None:
    graph = model(f"g (float[2,3] x) => (float y) {CONSTANTS} {{ y = Reshape(x, rows) }}").graph
    graph.inputs.append(graph.initializers["rows"])
    (shape,) = infer_shapes(graph[-1], 20)
    assert shape is not None
    assert [dim.value for dim in shape if isinstance(dim, ir.SymbolicDim)] == [None, None]
