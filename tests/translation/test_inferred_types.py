"""Types that ONNX infers from some nodes of a graph."""

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir import DataType

from fx_onnx.onnx_model.weights import weight
from fx_onnx.translation.inferred_types import inferred_types, nodes_after
from tests.translation.emitters import emitter, value


def test_only_the_nodes_after_a_node_are_read() -> None:
    op = emitter()
    x = value(op, DataType.FLOAT, 2, 3)
    first = op.Transpose(x, perm=[1, 0])
    second = op.Relu(first)
    new = nodes_after(op.graph, first.producer())
    assert new == [second.producer()]
    assert nodes_after(op.graph, None) == [first.producer(), second.producer()]
    assert inferred_types(new, [first, second], {}, {"": 20}) == {second: (DataType.FLOAT, None)}
    op.with_sizes(first, (3, 2))
    assert inferred_types(new, [first, second], {}, {"": 20}) == {second: (DataType.FLOAT, (3, 2))}


def test_constants_decide_sizes() -> None:
    op = emitter()
    x = value(op, DataType.FLOAT, 2, 3)
    result = op.Reshape(x, op.Concat([3], op.Shape(x, start=0, end=1), axis=0))
    assert inferred_types(list(op.graph), [result], {}, {"": 20}) == {result: (DataType.FLOAT, (3, 2))}


def test_a_constant_without_data_has_its_type() -> None:
    op = emitter()
    x = value(op, DataType.FLOAT, 2, 3)
    data = weight(torch.empty(2, 3, device="meta"), "w")
    w = ir.Value(name="w", type=ir.TensorType(DataType.FLOAT), shape=ir.Shape((2, 3)), const_value=data)
    op.graph.register_initializer(op.with_sizes(w, (2, 3)))
    result = op.Add(x, w)
    assert inferred_types(list(op.graph), [result], {}, {"": 20}) == {result: (DataType.FLOAT, (2, 3))}


def test_a_branch_may_read_values_from_outside() -> None:
    op = emitter()
    x = value(op, DataType.FLOAT, 2, 3)
    y = op.with_sizes(op.Transpose(x, perm=[1, 0]), (3, 2))
    last = y.producer()
    then, other = op.nested(), op.nested()
    branches = {"then_branch": then.finish([then.Relu(y)]), "else_branch": other.finish([other.Neg(y)])}
    result = op.If(np.array(True), **branches)
    assert inferred_types(nodes_after(op.graph, last), [result], {}, {"": 20}) == {result: (DataType.FLOAT, (3, 2))}


def test_nothing_is_inferred_from_invalid_or_unknown_nodes() -> None:
    op = emitter()
    x = value(op, DataType.FLOAT, 2, 3)
    invalid, unknown = op.Add(x, np.zeros((4,), np.float32)), op.emit("Unknown", x, domain="com.example")
    found = inferred_types(list(op.graph), [invalid, unknown], {}, {"": 20, "com.example": 1})
    assert unknown not in found
    assert found.get(invalid, (DataType.FLOAT, None)) == (DataType.FLOAT, None)
