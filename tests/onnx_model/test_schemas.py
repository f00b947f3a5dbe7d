"""ONNX schemas as the emitter reads them."""

import onnx
import pytest
from onnx_ir import AttributeType, DataType

from fx_onnx.onnx_model.opsets import MAXIMUM_OPSET, MINIMUM_NATIVE_OPSET
from fx_onnx.onnx_model.schemas import check_meaning, operator_schema, tensor_type


def test_concrete_types_and_variables() -> None:
    assert tensor_type("tensor(int64)") is DataType.INT64
    assert tensor_type("tensor(float)") is DataType.FLOAT
    assert tensor_type("tensor(bfloat16)") is DataType.BFLOAT16
    assert tensor_type("T") is None
    assert tensor_type("seq(tensor(float))") is None


def test_every_element_type_of_onnx_is_known() -> None:
    cast = onnx.defs.get_schema("Cast", 20)
    for text in cast.type_constraints[0].allowed_type_strs:
        assert text == "tensor(string)" or tensor_type(text) is not None, text


def test_a_schema_is_that_of_the_opset() -> None:
    assert operator_schema("Attention", 22) is None
    attention = operator_schema("Attention", 23)
    assert attention is not None
    assert [parameter.name for parameter in attention.inputs[:3]] == ["Q", "K", "V"]
    assert attention.attributes["is_causal"] is AttributeType.INT
    assert operator_schema("NoSuchOperator", 20) is None


def test_parameters() -> None:
    clip = operator_schema("Clip", 20)
    assert clip is not None
    assert [parameter.required for parameter in clip.inputs] == [True, False, False]
    concat = operator_schema("Concat", 20)
    assert concat is not None
    assert concat.inputs[0].variadic
    assert concat.required_attributes == {"axis"}
    top_k = operator_schema("TopK", 20)
    assert top_k is not None
    assert top_k.required_outputs == 2
    dropout = operator_schema("Dropout", 20)
    assert dropout is not None
    assert dropout.required_outputs == 1


def test_type_variables_hold_their_element_types() -> None:
    add = operator_schema("Add", 20)
    assert add is not None
    assert DataType.FLOAT in add.types["T"]
    assert DataType.BOOL not in add.types["T"]


def test_a_variable_of_one_type_is_that_type() -> None:
    shape = operator_schema("Shape", 20)
    assert shape is not None
    assert shape.outputs[0].type == "tensor(int64)"
    assert shape.inputs[0].type == "T"


def test_deprecated_operators_are_absent() -> None:
    assert operator_schema("Upsample", 20) is None
    assert operator_schema("Scatter", 20) is None


@pytest.mark.parametrize("opset", range(MINIMUM_NATIVE_OPSET, MAXIMUM_OPSET + 1))
def test_every_operator_of_every_native_opset_is_readable(opset: int) -> None:
    names = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    known = [schema for name in names if (schema := operator_schema(name, opset)) is not None]
    assert len(known) > 150
    assert all(parameter.name and parameter.type for schema in known for parameter in schema.inputs)


CHANGED = {
    27: "Range",
    28: """BitShift Cast Celu Compress DepthToSpace DequantizeLinear Einsum Mod OneHot Optional OptionalGetElement
    OptionalHasElement QuantizeLinear ReduceLogSum ReduceLogSumExp ReverseSequence SpaceToDepth Unique""",
}
"""The operators whose version is new in an opset, apart from new operators. Of those that translations emit, BitShift
admits signed integers, Celu all floats and Mod a remainder of floats; SpaceToDepth has a mode; ReduceLogSum and
ReduceLogSumExp admit no integers. The others admit more dtypes; Range computes those in float32."""


@pytest.mark.parametrize("opset", range(27, MAXIMUM_OPSET + 1))
def test_known_operators_changed(opset: int) -> None:
    schemas = [each for each in onnx.defs.get_all_schemas_with_history() if not each.domain]
    older = {each.name for each in schemas if each.since_version < opset}
    assert {each.name for each in schemas if each.since_version == opset} & older == set(CHANGED[opset].split())


def test_operators_whose_meaning_changed_are_refused() -> None:
    check_meaning("Relu", 18, 26)
    check_meaning("GridSample", 20, 22)
    for operator, written_for, opset in (("GridSample", 16, 20), ("DFT", 20, 18), ("Gelu", 20, 18)):
        with pytest.raises(TypeError, match=operator):
            check_meaning(operator, written_for, opset)
