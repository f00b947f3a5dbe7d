"""The emitter: one ONNX node a call, constants of the right dtype, shapes as constants where they can be."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
import torch
from onnx_ir import DataType
from torch.export import Dim

from fx_onnx.core.symbolic_sizes import Size
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translation.size_values import SymbolTable


@pytest.fixture(scope="module")
def sizes() -> tuple[torch.SymInt, torch.SymInt]:
    """Two symbolic sizes."""
    model = torch.nn.Identity()
    program = torch.export.export(model, (torch.randn(7, 5),), dynamic_shapes=({0: Dim("a"), 1: Dim("b")},))
    (placeholder,) = program.graph.find_nodes(op="placeholder")
    return tuple(placeholder.meta["val"].shape)


def emitter(opset: int = 20) -> Emitter:
    return Emitter(ir.Graph((), (), nodes=(), opset_imports={"": opset}, name="g"), opset, SymbolTable({}))


def value(op: Emitter, dtype: DataType = DataType.FLOAT, *dims: Size, name: str = "x") -> ir.Value:
    made = ir.Value(name=name, type=ir.TensorType(dtype))
    op.graph.inputs.append(made)
    op.with_sizes(made, dims)
    op.symbols.define_sizes(made, dims)
    return made


def constants(op: Emitter) -> list[tuple[DataType, list[object]]]:
    held = op.graph.initializers.values()
    return [(v.const_value.dtype, v.const_value.numpy().tolist()) for v in held if v.const_value is not None]


def kinds(op: Emitter) -> list[str]:
    return [node.op_type for node in op.graph]


# ---------------------------------------------------------------- nodes


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
        (lambda op, x: op.Attention(x, x, x), "opset 20 has no operator Attention"),
        (lambda op, x: op.Relu(x, alpha=1.0), "has no attribute 'alpha'"),
        (lambda op, x: op.Concat(x), "Concat needs the attribute 'axis'"),
        (lambda op, x: op.Cast(x), "Cast needs the attribute 'to'"),
        (lambda op, x: op.Relu(x, x), "takes 1 inputs at most"),
    ],
)
def test_refused_at_emission(emit, message: str) -> None:
    op = emitter()
    with pytest.raises(TypeError, match=message):
        emit(op, value(op))


def test_unknown_helpers_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no helper 'no_such_helper'"):
        emitter().no_such_helper(1)


# ---------------------------------------------------------------- constants


def test_constants_are_deduplicated_by_dtype_shape_and_bytes() -> None:
    op = emitter()
    assert op.constant(1) is op.constant(1)
    assert op.constant(1) is not op.constant([1])
    assert op.constant(1) is not op.constant(1.0)
    assert op.constant(1.0) is not op.constant(1.0, torch.float16)
    assert op.constant(0.0) is not op.constant(-0.0)
    assert op.constant(float("nan")) is op.constant(float("nan"))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.bool, torch.uint8])
def test_constants_of_a_dtype(kind: torch.dtype) -> None:
    held = emitter().constant([1, 0], kind).const_value
    assert held is not None
    assert held.numpy().astype(np.float64).tolist() == [1.0, 0.0]
    assert torch.empty(0, dtype=kind).dtype == kind


def test_default_dtypes_of_constants() -> None:
    op = emitter()
    assert [op.constant(v).dtype for v in (True, 2, 2.5, [1, 2], np.float64(1.0) * np.ones(2))] == [
        DataType.BOOL,
        DataType.INT64,
        DataType.FLOAT,
        DataType.INT64,
        DataType.DOUBLE,
    ]


# ---------------------------------------------------------------- casts and promotion


def test_cast_only_where_needed() -> None:
    op = emitter()
    x = value(op, DataType.FLOAT, 2)
    assert op.cast(x, torch.float32) is x
    assert op.cast(x, DataType.INT64).dtype is DataType.INT64
    assert op.sizes(op.cast(x, torch.int64)) == (2,)
    assert kinds(op) == ["Cast", "Cast"]
    assert op.cast(2.7, torch.int64).const_value.numpy() == 2


def test_promote_follows_torch() -> None:
    op = emitter()
    ints, floats = value(op, DataType.INT64, 2, name="i"), value(op, DataType.FLOAT16, 2, name="f")
    scalar = value(op, DataType.DOUBLE, name="s")
    assert {v.dtype for v in op.promote(ints, floats)} == {DataType.FLOAT16}
    assert {v.dtype for v in op.promote(floats, scalar)} == {DataType.FLOAT16}
    assert {v.dtype for v in op.promote(ints, 2.5)} == {DataType.FLOAT}
    assert {v.dtype for v in op.promote(ints, 2)} == {DataType.INT64}
    assert {v.dtype for v in op.promote(ints, 2, dtype=torch.float64)} == {DataType.DOUBLE}
    assert op.result_type(floats, True) == torch.float16


# ---------------------------------------------------------------- shapes


def test_known_sizes_are_a_constant(sizes: tuple[torch.SymInt, torch.SymInt]) -> None:
    op = emitter()
    op.shape([2, 3])
    assert kinds(op) == []
    assert constants(op) == [(DataType.INT64, [2, 3])]


def test_symbolic_sizes_are_read_once(sizes: tuple[torch.SymInt, torch.SymInt]) -> None:
    op = emitter()
    value(op, DataType.FLOAT, *sizes)
    op.shape([sizes[0], 2, 3, sizes[1]])
    op.shape([sizes[0], sizes[1]])
    assert kinds(op) == ["Shape", "Shape", "Concat", "Concat"]


@pytest.mark.parametrize(
    ("make", "want"),
    [
        (lambda a, b: (a, b * 4), None),
        (lambda a, b: (a, 2, 10), [0, 2, 10]),
    ],
)
def test_reshape_is_constant_where_it_can_be(sizes, make, want) -> None:
    a, b = sizes
    op = emitter()
    x = value(op, DataType.FLOAT, a, 20) if want else value(op, DataType.FLOAT, a, 4, b)
    result = op.reshape(x, make(a, b))
    assert op.sizes(result) == make(a, b)
    assert kinds(op) == ["Reshape"]
    (shape,) = constants(op)
    assert shape[0] is DataType.INT64
    assert shape[1].count(-1) <= 1


def test_reshape_to_two_unknown_sizes_reads_them(sizes: tuple[torch.SymInt, torch.SymInt]) -> None:
    a, b = sizes
    op = emitter()
    x = value(op, DataType.FLOAT, a * b)
    value(op, DataType.FLOAT, a, b, name="y")
    op.reshape(x, [a, b])
    assert kinds(op)[-1] == "Reshape"
    assert "Concat" in kinds(op)


def test_reshape_to_zero_says_so() -> None:
    op = emitter()
    node = op.reshape(value(op, DataType.FLOAT, 0, 3), [0, 5]).producer()
    assert node.attributes["allowzero"].as_int() == 1
    assert "allowzero" not in op.reshape(value(op, DataType.FLOAT, 6, name="y"), [2, 3]).producer().attributes


def test_helpers_that_have_nothing_to_do_emit_nothing(sizes: tuple[torch.SymInt, torch.SymInt]) -> None:
    a, b = sizes
    op = emitter()
    x = value(op, DataType.FLOAT, a, b)
    assert op.reshape(x, [a, b]) is x
    assert op.expand(x, [a, b]) is x
    assert op.transpose(x, [0, 1]) is x
    assert op.transpose(x, [0, -1]) is x
    assert op.squeeze(x) is x
    assert op.unsqueeze(x) is x
    assert kinds(op) == []


def test_sizes_go_along(sizes: tuple[torch.SymInt, torch.SymInt]) -> None:
    a, b = sizes
    op = emitter()
    x = value(op, DataType.FLOAT, a, 1, b)
    assert op.sizes(op.transpose(x, [2, 0, 1])) == (b, a, 1)
    assert op.sizes(op.squeeze(x, 1)) == (a, b)
    assert op.sizes(op.squeeze(x, -2)) == (a, b)
    assert op.sizes(op.unsqueeze(x, 0, -1)) == (1, a, 1, b, 1)
    assert op.sizes(op.expand(x, [a, 4, b])) == (a, 4, b)
    assert op.rank(x) == 3
    with pytest.raises(LookupError, match="sizes of the intermediate value"):
        op.sizes(op.Relu(x))
