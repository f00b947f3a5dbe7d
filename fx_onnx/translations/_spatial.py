"""Helpers of the families over (N, C, spatial...) tensors: convolution, pooling and vision."""

from collections.abc import Callable, Sequence

from onnx_ir import DataType, Value

from fx_onnx.onnx_model import dtypes
from fx_onnx.onnx_model.schemas import operator_schema
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translations._widening import widened


def per_axis(value: int | Sequence[int], axes: int) -> list[int]:
    """Returns an ATen ``int[n]`` argument as ``axes`` numbers; ATen allows a single number for all axes."""
    numbers = [value] if isinstance(value, int) else list(value)
    return numbers * axes if len(numbers) == 1 else numbers


def widened_or_double(op: Emitter, op_type: str, value: Value) -> Value:
    """Returns the value in a dtype that the operator admits.

    An integer becomes float64 if the operator does not admit its dtype: float64 represents integers exactly up to
    2**53.
    """
    schema = operator_schema(op_type, op.opset)
    admits = schema is not None and value.dtype in schema.types["T"]
    if not admits and value.dtype is not None and dtypes.is_integer(value.dtype):
        return op.cast(value, DataType.DOUBLE)
    return widened(op, op_type, value)


def over_batch(op: Emitter, value: Value, axes: int, emit: Callable[[Value], Value]) -> Value:
    """Applies ``emit`` to an (N, C, spatial...) value.

    An unbatched value gets a batch axis of size 1 first, which is removed from the result.
    """
    if op.rank(value) == axes + 2:
        return emit(value)
    return op.squeeze(emit(op.unsqueeze(value, 0)), 0)
