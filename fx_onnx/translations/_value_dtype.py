"""The dtype of a value, which every value of a translated graph has."""

from onnx_ir import DataType, Value


def value_dtype(value: Value) -> DataType:
    """Returns the dtype of a value.

    Raises:
        LookupError: the dtype is not known.
    """
    if value.dtype is None:
        raise LookupError(f"the dtype of {value.name} is unknown")
    return value.dtype
