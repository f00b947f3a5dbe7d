"""What translations of several families share."""

from onnx_ir import DataType, Value

from fx_onnx.emitter import Emitter
from fx_onnx.schemas import operator_schema

# Where an operator does not admit a dtype, the first of these that it does admit holds all its values.
_WIDER = {
    DataType.BOOL: (DataType.UINT8, DataType.INT32),
    DataType.UINT8: (DataType.INT32, DataType.INT64),
    DataType.INT8: (DataType.INT32, DataType.INT64),
    DataType.INT16: (DataType.INT32, DataType.INT64),
    DataType.UINT16: (DataType.INT32, DataType.INT64),
    DataType.BFLOAT16: (DataType.FLOAT,),
    DataType.FLOAT16: (DataType.FLOAT,),
}


def admitted(op: Emitter, op_type: str, value: Value, variable: str = "T") -> Value:
    """The value in its own dtype where ONNX's operator admits it for a type variable, else in the nearest wider one."""
    types = operator_schema(op_type, op.opset).types[variable]  # type: ignore[union-attr]
    if value.dtype is None or value.dtype in types:
        return value
    for wider in _WIDER.get(value.dtype, ()):
        if wider in types:
            return op.cast(value, wider)
    raise NotImplementedError(f"ONNX {op_type} has no form for {value.dtype.name}")
