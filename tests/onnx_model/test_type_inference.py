"""Element types of a node's inputs and outputs, from the schema of its operator."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx_ir import DataType

from fx_onnx.onnx_model.opsets import MAXIMUM_OPSET, MINIMUM_NATIVE_OPSET
from fx_onnx.onnx_model.schemas import OperatorSchema, operator_schema, tensor_type
from fx_onnx.onnx_model.type_inference import (
    UnequalDtypesError,
    bind_type_variables,
    check_equal_dtypes,
    infer_output_dtypes,
    parameter_dtype,
)

HALF, FLOAT, DOUBLE, INT8, INT64, BOOL = (
    DataType.FLOAT16, DataType.FLOAT, DataType.DOUBLE, DataType.INT8, DataType.INT64, DataType.BOOL,
)  # fmt: skip


def _schema(op_type: str, opset: int = 23) -> OperatorSchema:
    schema = operator_schema(op_type, opset)
    assert schema is not None
    return schema


def _infer(op_type: str, *inputs: DataType | None, opset: int = 23, count: int = 1, **attributes: object) -> list:
    attrs = {name: ir.convenience.convert_attribute(name, value) for name, value in attributes.items()}
    return infer_output_dtypes(_schema(op_type, opset), inputs, attrs, count)


def test_a_type_variable_is_bound_by_an_input() -> None:
    assert _infer("Add", HALF, None) == [HALF]
    assert _infer("Where", BOOL, None, DOUBLE) == [DOUBLE]
    assert _infer("Concat", INT8, INT8, INT8) == [INT8]
    assert _infer("Split", HALF, count=3) == [HALF] * 3
    assert _infer("Relu", None) == [None]


@pytest.mark.parametrize("op_type", ["Not", "IsNaN", "Less", "Equal", "And"])
def test_the_schema_fixes_a_boolean_output(op_type: str) -> None:
    assert _infer(op_type, FLOAT) == [BOOL]


def test_the_schema_fixes_an_integer_output() -> None:
    assert _infer("Shape", HALF) == [INT64]
    assert _infer("TopK", HALF, INT64, count=2) == [HALF, INT64]
    assert _infer("Dropout", FLOAT, FLOAT, BOOL, count=2) == [FLOAT, BOOL]


def test_an_attribute_names_the_type() -> None:
    assert _infer("Cast", FLOAT, to=int(INT8)) == [INT8]
    assert _infer("EyeLike", FLOAT, dtype=int(INT64)) == [INT64]
    assert _infer("DequantizeLinear", INT8, FLOAT, output_dtype=int(HALF)) == [HALF]


def test_a_constant_has_the_type_of_its_value() -> None:
    assert _infer("Constant", value=ir.Tensor(np.zeros(2, np.int8))) == [INT8]
    assert _infer("Constant", value_float=1.0) == [FLOAT]
    assert _infer("Constant", value_ints=[1, 2]) == [INT64]
    assert _infer("ConstantOfShape", INT64, value=ir.Tensor(np.zeros(1, np.bool_))) == [BOOL]


def test_the_default_of_the_operator() -> None:
    assert _infer("ConstantOfShape", INT64) == [FLOAT]
    assert _infer("RandomNormal", shape=[2]) == [FLOAT]
    assert _infer("RandomNormalLike", DOUBLE) == [DOUBLE]
    assert _infer("QuantizeLinear", FLOAT, FLOAT) == [DataType.UINT8]
    assert _infer("QuantizeLinear", FLOAT, FLOAT, INT8) == [INT8]
    assert _infer("DequantizeLinear", INT8, HALF, output_dtype=0) == [HALF]
    assert _infer("DequantizeLinear", INT8, HALF, opset=21) == [HALF]


def test_nothing_decides_the_outputs_of_control_flow_and_of_sequences() -> None:
    assert _infer("If", BOOL, count=2) == [None, None]
    assert _infer("SequenceEmpty", dtype=int(FLOAT)) == [None]


def test_the_type_of_an_input_that_is_a_number() -> None:
    power = _schema("Pow")
    bound = bind_type_variables(power, [HALF, None])
    assert bound == {"T": HALF}
    assert [parameter_dtype(power.input(index), bound) for index in (0, 1)] == [HALF, None]
    reshape = _schema("Reshape")
    assert parameter_dtype(reshape.input(1), {}) is INT64
    with pytest.raises(TypeError, match="Relu takes 1 inputs at most"):
        _schema("Relu").input(1)


# Operators whose outputs are not tensors, or depend on a graph attribute or on an untyped sequence.
UNDECIDED = {"If", "Loop", "Scan", "Optional", "OptionalGetElement", "ConcatFromSequence", "SequenceAt"}


@pytest.mark.parametrize("opset", [MINIMUM_NATIVE_OPSET, 21, 23, MAXIMUM_OPSET])
def test_agrees_with_the_shape_inference_of_onnx(opset: int) -> None:
    """Compares every operator that needs exactly one input and no attribute, if ONNX can infer its output."""
    compared = 0
    for name in sorted({schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""} - UNDECIDED):
        schema = operator_schema(name, opset)
        if schema is None or schema.required_attributes or sum(p.required for p in schema.inputs) != 1:
            continue
        for dtype in (FLOAT, INT64, BOOL):
            kind = schema.inputs[0].type
            if dtype not in schema.types.get(kind, {tensor_type(kind)}):
                continue
            node = onnx.helper.make_node(name, ["x"], ["y"])
            x = onnx.helper.make_tensor_value_info("x", int(dtype), [1, 2, 3])
            graph = onnx.helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name="y")])
            model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
            try:
                inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output[0].type
            except onnx.shape_inference.InferenceError:
                continue
            if not inferred.HasField("tensor_type") or not inferred.tensor_type.elem_type:
                continue
            assert infer_output_dtypes(schema, [dtype], {}, 1) == [DataType(inferred.tensor_type.elem_type)], name
            compared += 1
    assert compared > 60


@pytest.mark.parametrize(
    ("op_type", "inputs"),
    [("Gemm", (FLOAT, None, DOUBLE)), ("Concat", (INT8, INT8, INT64)), ("Where", (BOOL, FLOAT, HALF))],
)
def test_a_type_variable_has_one_type(op_type: str, inputs: tuple[DataType | None, ...]) -> None:
    with pytest.raises(UnequalDtypesError, match=f"ONNX {op_type} takes tensors of one dtype"):
        check_equal_dtypes(_schema(op_type), inputs)


@pytest.mark.parametrize(("op_type", "inputs"), [("Loop", (INT64, BOOL, FLOAT, HALF)), ("Pow", (FLOAT, INT64))])
def test_inputs_that_may_differ(op_type: str, inputs: tuple[DataType | None, ...]) -> None:
    check_equal_dtypes(_schema(op_type), inputs)
