"""What the families over (N, C, spatial...) tensors share: convolution, pooling, resize, vision."""

from collections.abc import Callable, Sequence

from onnx_ir import DataType, Value

from fx_onnx.core import dtypes
from fx_onnx.core.schemas import operator_schema
from fx_onnx.ops._widening import widened
from fx_onnx.translation.emitter import Emitter


def per_axis(value: int | Sequence[int], axes: int) -> list[int]:
    """An ATen ``int[n]`` argument, of which one number stands for all, as ``axes`` numbers."""
    numbers = [value] if isinstance(value, int) else list(value)
    return numbers * axes if len(numbers) == 1 else numbers


def widened_or_double(op: Emitter, op_type: str, value: Value) -> Value:
    """The value in a dtype ONNX's operator admits: bfloat16 widens to float32, an integer to a type it has.

    An integer that only a floating-point type is left for becomes float64, which is exact up to 2**53.
    """
    schema = operator_schema(op_type, op.opset)
    admits = schema is not None and value.dtype in schema.types["T"]
    if not admits and value.dtype is not None and dtypes.is_integer(value.dtype):
        return op.cast(value, DataType.DOUBLE)
    return widened(op, op_type, value)


def over_batch(op: Emitter, value: Value, axes: int, emit: Callable[[Value], Value]) -> Value:
    """``emit`` of a (N, C, spatial...) value; an unbatched one gets its N on the way in and loses it on the way out."""
    if op.rank(value) == axes + 2:
        return emit(value)
    return op.squeeze(emit(op.unsqueeze(value, 0)), 0)
