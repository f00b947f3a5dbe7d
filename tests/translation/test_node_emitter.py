"""Creation of single ONNX nodes: dtypes, constants, optional inputs, attributes and errors."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch
from onnx_ir import DataType

from fx_onnx.translation.emitter import as_tuple
from tests.translation.emitters import constants, emitter, value


def test_a_node_with_its_name_and_metadata() -> None:
    op = emitter()
    op.enter("relu", {"key": "text"}, ())
    result = op.Relu(value(op))
    assert result.name == "relu.Relu_0"
    node = result.producer()
    assert node is not None
    assert node.metadata_props["key"] == "text"
    assert op.Relu(result).name == "relu.Relu_1"
    op.enter("other", {}, ())
    assert op.Relu(result).name == "other.Relu_0"


def test_dtypes_follow_the_type_variables() -> None:
    op = emitter()
    x = value(op, DataType.FLOAT16)
    assert op.Relu(x).dtype is DataType.FLOAT16
    assert op.Shape(x).dtype is DataType.INT64
    assert op.Greater(x, x).dtype is DataType.BOOL
    assert op.Cast(x, to=torch.int32).dtype is DataType.INT32
    assert op.ConstantOfShape([2], value=ir.tensor([1], dtype=DataType.INT8)).dtype is DataType.INT8
    values, indices = op.TopK(x, [1])
    assert (values.dtype, indices.dtype) == (DataType.FLOAT16, DataType.INT64)


def test_numbers_take_the_dtype_of_their_type_variable() -> None:
    op = emitter()
    half, index = value(op, DataType.FLOAT16), value(op, DataType.INT32, name="i")
    op.Add(half, 1)
    op.Mul(2, index)
    op.Gather(half, [0, 1], axis=0)
    op.Where(value(op, DataType.BOOL, name="b"), half, 0)
    assert constants(op) == [
        (DataType.FLOAT16, 1.0),
        (DataType.INT32, 2),
        (DataType.INT64, [0, 1]),
        (DataType.FLOAT16, 0.0),
    ]


def test_a_fraction_is_never_an_integer() -> None:
    op = emitter()
    with pytest.raises(TypeError, match=r"0\.5 cannot be a constant of an integer dtype"):
        op.Add(value(op, DataType.INT64), 0.5)


def test_optional_inputs() -> None:
    op = emitter()
    x = value(op)
    node = op.Clip(x, None, 1.0).producer()
    assert [given is None for given in node.inputs] == [False, True, False]
    assert len(op.Clip(x, 0.0, None).producer().inputs) == 2
    assert len(op.Clip(x, max=2.0).producer().inputs) == 3


def test_attributes() -> None:
    op = emitter()
    x = value(op)
    node = op.Softmax(x, axis=1).producer()
    assert node.attributes["axis"].as_int() == 1
    assert "axis" not in op.Softmax(x, axis=None).producer().attributes
    assert op.LeakyRelu(x, alpha=1).producer().attributes["alpha"].type is ir.AttributeType.FLOAT
    assert op.Transpose(x, perm=(1, 0)).producer().attributes["perm"].as_ints() == (1, 0)


@pytest.mark.parametrize(
    ("emit", "message"),
    [
        (lambda op, x: op.NoSuchOperator(x), "opset 20 has no operator NoSuchOperator"),
        (lambda op, x: op.Attention(x, x, x), "opset 20 has no operator Attention; it begins with opset 23"),
        (lambda op, x: op.Relu(x, alpha=1.0), "has no attribute 'alpha'$"),
        (lambda op, x: op.LeakyRelu(x, alpa=1.0), "has no attribute 'alpa'; did you mean 'alpha'"),
        (lambda op, x: op.Concat(x), "Concat needs the attribute 'axis'"),
        (lambda op, x: op.Cast(x), "Cast needs the attribute 'to'"),
        (lambda op, x: op.Relu(x, x), "takes 1 inputs at most"),
        (lambda op, x: op.Relu(), "Relu needs the input 'X'"),
        (lambda op, x: op.Gemm(x, None, x), "Gemm needs the input 'B'"),
        (lambda op, x: op.Relu(x, outputs=2), "Relu has 1 outputs at most, not 2"),
        (lambda op, x: op.Relu("x"), "an input of a node is a value or a number, not 'x'"),
    ],
)
def test_refused_at_emission(emit, message: str) -> None:
    op = emitter()
    with pytest.raises(TypeError, match=message):
        emit(op, value(op))


def test_unknown_helpers_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no helper 'no_such_helper'"):
        emitter().no_such_helper(1)
    with pytest.raises(AttributeError, match="no helper 'relu'; the operator of ONNX is 'Relu'"):
        emitter().relu(1)


def test_the_number_of_outputs() -> None:
    op = emitter()
    x = value(op)
    assert isinstance(op.Dropout(x), ir.Value)
    assert len(op.Dropout(x, outputs=2)) == 2
    assert isinstance(op.Split(x, num_outputs=1, outputs=1), ir.Value)
    assert len(op.TopK(x, [1])) == 2
    assert [len(as_tuple(op.Split(x, num_outputs=n, outputs=n))) for n in (1, 3)] == [1, 3]


def test_another_domain_is_imported_in_one_version() -> None:
    op = emitter()
    assert op.emit("Custom", value(op), 2.0, domain="com.example", version=3, outputs=2, flag=True)[1].dtype is None
    assert op.graph.opset_imports["com.example"] == 3
    with pytest.raises(ValueError, match=r"imports one opset of com\.example, but 3 and 4"):
        op.emit("Custom", domain="com.example", version=4)
