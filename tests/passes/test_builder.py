"""The node builder of the passes: types by the schema, constants, names, metadata and places of new nodes."""

import math

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnx_ir import DataType

from fx_onnx.onnx_model import metadata
from fx_onnx.passes.builder import NodeBuilder, undo_float32_rounding
from fx_onnx.passes.editor import Editor
from tests.passes.checking import model, run

TEXT = "g (float16[2, 3] x, bool[2] c) => (float16[2, 3] y) { y = Relu(x) }"


def builder(opset: int = 20, after: bool = False) -> NodeBuilder:
    """Returns a builder that inserts before the only node of a small model, or after the input of the graph."""
    program = model(TEXT, opset=opset)
    (node,) = program.graph
    return NodeBuilder(node, Editor(program), node.inputs[0].dtype, after=node.inputs[0] if after else None)


def test_the_schema_decides_the_types_of_outputs() -> None:
    f = builder()
    x, condition = f.editor.model.graph.inputs
    assert f.Exp(x).dtype is DataType.FLOAT16
    assert f.Not(condition).dtype is DataType.BOOL
    assert f.IsNaN(x).dtype is DataType.BOOL
    assert f.Shape(x).dtype is DataType.INT64
    assert f.Less(x, 0.0).dtype is DataType.BOOL
    assert f.Cast(x, to=int(DataType.DOUBLE)).dtype is DataType.DOUBLE
    values, indices = f.emit("TopK", [x, [1]], {}, outputs=2)
    assert (values.dtype, indices.dtype) == (DataType.FLOAT16, DataType.INT64)
    mask = f.random_mask(x)
    assert mask.dtype is DataType.BOOL


def test_numbers_take_the_type_of_the_other_input() -> None:
    f = builder()
    x, condition = f.editor.model.graph.inputs
    product = f.Mul(f.Shape(x), 2).producer()
    assert product is not None
    assert product.inputs[1].dtype is DataType.INT64
    chosen = f.Where(condition, 1.0, 0.0)
    assert chosen.dtype is DataType.FLOAT16
    assert [value.dtype for value in chosen.producer().inputs] == [DataType.BOOL, DataType.FLOAT16, DataType.FLOAT16]


def test_lists_and_arrays_become_constants() -> None:
    f = builder()
    x = f.editor.model.graph.inputs[0]
    reshape = f.Reshape(x, [3, 2], sizes=[3, 2]).producer()
    assert reshape.inputs[1].const_value.numpy().tolist() == [3, 2]
    assert reshape.inputs[1].dtype is DataType.INT64
    assert reshape.outputs[0].shape == [3, 2]
    assert f.constant(np.array([1.5], np.float64)).dtype is DataType.DOUBLE


def test_new_nodes_come_before_the_node_with_its_name_and_metadata() -> None:
    f = builder()
    x = f.editor.model.graph.inputs[0]
    first = f.Exp(x)
    second = f.Exp(first)
    assert [node.op_type for node in f.editor.model.graph] == ["Exp", "Exp", "Relu"]
    assert first.name.endswith(".Exp")
    assert first.name != second.name
    assert first.producer().metadata_props[metadata.FX_NODE] == "%y"


def test_new_nodes_come_after_a_value_in_order() -> None:
    f = builder(after=True)
    x = f.editor.model.graph.inputs[0]
    f.Neg(f.Exp(x))
    assert [node.op_type for node in f.editor.model.graph] == ["Exp", "Neg", "Relu"]


def test_an_operator_that_the_opset_lacks_is_refused() -> None:
    f = builder(opset=18)
    with pytest.raises(TypeError, match="opset 18 has no operator Gelu"):
        f.Gelu(f.editor.model.graph.inputs[0])
    with pytest.raises(AttributeError):
        f.gelu(1)


def test_formulas() -> None:
    """Polynomial, log1p and odd give the values that torch gives."""
    program = model("g (double[4] x) => (double[4] a, double[4] b, double[4] c) { a, b, c = Split<axis = 0>(x, x) }")
    (node,) = program.graph
    x = program.graph.inputs[0]
    f = NodeBuilder(node, Editor(program), DataType.DOUBLE)
    outputs = [f.polynomial(x, [1.0, 2.0, 3.0]), f.log1p(f.Abs(x)), f.odd(x, f.Sqrt(f.Abs(x)))]
    program.graph.outputs[:] = outputs
    program.graph.remove(node)
    numbers = torch.tensor([-2.0, -1e-17, 1e-9, 3.0], dtype=torch.float64)
    found = run(program, [numbers])
    want = [
        1 + 2 * numbers + 3 * numbers**2,
        numbers.abs().log1p(),
        numbers.sign() * numbers.abs().sqrt(),
    ]
    for got, expected in zip(found, want, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("number", [1 / 6, 5 / 6, 0.2, 1e-5, 0.7, 2.0, math.pi])
def test_the_rounding_of_a_float32_is_undone(number: float) -> None:
    found = undo_float32_rounding(float(np.float32(number)))
    assert np.float32(found) == np.float32(number)
    if number != math.pi:
        assert found == number


def test_constants_are_shared() -> None:
    f = builder()
    assert f.constant([1, 2]) is f.constant([1, 2])
    assert isinstance(f.constant(1.0), ir.Value)
