"""Inference of the element types of a node's inputs and outputs from the schema of its ONNX operator.

The emitter and the node builder of the passes share these functions, so both give a node the same types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.onnx_model.schemas import OperatorSchema, Parameter, tensor_type

__all__ = ["UnequalDtypesError", "bind_type_variables", "check_equal_dtypes", "infer_output_dtypes", "parameter_dtype"]

# The attributes that name the element type of an output.
_DTYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "output_datatype")

# The input that gives the element type of the output if no attribute names one.
_INPUT_OF_DEFAULT_DTYPE = {
    "Bernoulli": 0, "DequantizeLinear": 1, "EyeLike": 0, "RandomNormalLike": 0, "RandomUniformLike": 0,
}  # fmt: skip

# The element type of the output if neither an input nor an attribute gives one.
_DEFAULT_DTYPES = {
    "BlackmanWindow": DataType.FLOAT, "ConstantOfShape": DataType.FLOAT, "HammingWindow": DataType.FLOAT,
    "HannWindow": DataType.FLOAT, "MelWeightMatrix": DataType.FLOAT, "Multinomial": DataType.INT32,
    "QuantizeLinear": DataType.UINT8, "RandomNormal": DataType.FLOAT, "RandomUniform": DataType.FLOAT,
}  # fmt: skip

# The element type of a Constant by the attribute that holds its value.
_CONSTANT_DTYPES = {
    "value_float": DataType.FLOAT, "value_floats": DataType.FLOAT, "value_int": DataType.INT64,
    "value_ints": DataType.INT64, "value_string": DataType.STRING, "value_strings": DataType.STRING,
}  # fmt: skip


def bind_type_variables(schema: OperatorSchema, inputs: Sequence[DataType | None]) -> dict[str, DataType]:
    """Returns the element type that the inputs bind to each type variable, such as ``{"T": FLOAT}``.

    Args:
        schema: the schema of the operator.
        inputs: the element type of each input; None for an absent input or an unknown type.
    """
    return {schema.input(index).type: dtype for index, dtype in enumerate(inputs) if dtype is not None}


class UnequalDtypesError(TypeError):
    """An ONNX operator gets inputs of different element types where it takes one."""


def check_equal_dtypes(schema: OperatorSchema, inputs: Sequence[DataType | None]) -> None:
    """Checks that the inputs bind each type variable to one element type.

    Raises:
        UnequalDtypesError: two inputs bind it to different types, as in a product of float32 and float64 matrices.
            torch.export captures such a product, though PyTorch refuses to compute it.
    """
    bound: dict[str, DataType] = {}
    for index, dtype in enumerate(inputs):
        parameter = schema.input(index)
        if dtype is not None and parameter.homogeneous and bound.setdefault(parameter.type, dtype) != dtype:
            raise UnequalDtypesError(
                f"ONNX {schema.name} takes tensors of one dtype, but gets {bound[parameter.type].name} and {dtype.name}"
            )


def parameter_dtype(parameter: Parameter, bound: Mapping[str, DataType]) -> DataType | None:
    """Returns the element type of a formal input or output; None if its type variable is not bound."""
    return tensor_type(parameter.type) or (bound.get(parameter.type) if parameter.homogeneous else None)


def infer_output_dtypes(
    schema: OperatorSchema, inputs: Sequence[DataType | None], attributes: Mapping[str, ir.Attr], count: int
) -> list[DataType | None]:
    """Returns the element types of the first ``count`` outputs of a node.

    A type comes from the schema if the schema fixes it, else from the inputs through the type variables, else from an
    attribute (``to`` of Cast, ``value`` of Constant), else from the default that the operator's documentation states.
    An output has the type None if it is no tensor or if nothing decides its type, as with the outputs of If.
    """
    bound = bind_type_variables(schema, inputs)
    result: list[DataType | None] = []
    for index in range(count):
        parameter = schema.outputs[min(index, len(schema.outputs) - 1)]
        dtype = parameter_dtype(parameter, bound)
        if dtype is None and parameter.homogeneous and schema.types.get(parameter.type):
            dtype = _dtype_by_attribute(attributes) or _default_dtype(schema.name, inputs)
        result.append(dtype)
    return result


def _dtype_by_attribute(attributes: Mapping[str, ir.Attr]) -> DataType | None:
    """Returns the element type that an attribute names, or that of the constant that an attribute holds."""
    for name in _DTYPE_ATTRIBUTES:
        attribute = attributes.get(name)
        if attribute is not None and attribute.type == ir.AttributeType.INT and attribute.as_int():
            return DataType(attribute.as_int())
    value = attributes.get("value")
    if value is not None and value.type == ir.AttributeType.TENSOR:
        return value.as_tensor().dtype
    return next((dtype for name, dtype in _CONSTANT_DTYPES.items() if name in attributes), None)


def _default_dtype(op_type: str, inputs: Sequence[DataType | None]) -> DataType | None:
    index = _INPUT_OF_DEFAULT_DTYPE.get(op_type)
    if index is None:
        return _DEFAULT_DTYPES.get(op_type)
    return inputs[index] if index < len(inputs) else None
