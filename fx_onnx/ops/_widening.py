"""What several families of operators need beyond the emitter's helpers."""

from typing import Any

from onnx_ir import DataType, Value

from fx_onnx.core import dtypes
from fx_onnx.core.schemas import operator_schema
from fx_onnx.translation.emitter import Emitter


def admitted_dtypes(op: Emitter, op_type: str) -> frozenset[DataType] | None:
    """The dtypes that the first input of an ONNX operator admits; None where that is no type variable."""
    schema = operator_schema(op_type, op.opset)
    return schema.types.get(schema.inputs[0].type) if schema is not None else None


def widened(op: Emitter, op_type: str, value: Value) -> Value:
    """The value in the nearest wider dtype that the first input of an ONNX operator admits; often its own."""
    types, dtype = admitted_dtypes(op, op_type), value.dtype
    if types is None or dtype is None or dtype in types:
        return value
    if dtypes.is_float(dtype):
        wider: tuple[DataType, ...] = (DataType.FLOAT, DataType.DOUBLE)
    elif dtype.bitwidth >= 32:  # FLOAT does not hold all of them
        wider = (DataType.INT64, DataType.DOUBLE)
    else:
        wider = (DataType.INT32, DataType.INT64, DataType.FLOAT, DataType.DOUBLE)
    for candidate in wider:
        if candidate in types:
            return op.cast(value, candidate)
    raise NotImplementedError(f"ONNX {op_type} takes neither {dtype.name} nor a wider type.")


def emit_widened(op: Emitter, op_type: str, *operands: Value, **attributes: Any) -> Value:
    """One node of an operator whose result has the dtype of its operands, or is BOOL.

    Where ONNX lacks that dtype the node computes in the nearest wider one, and the result is cast back.
    """
    dtype, wide = operands[0].dtype, [widened(op, op_type, operand) for operand in operands]
    result: Value = op.emit(op_type, *wide, **attributes)
    return result if dtype is None or result.dtype != wide[0].dtype else op.cast(result, dtype)
