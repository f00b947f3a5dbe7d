"""Helpers of the operators that move elements: broadcasting, slices, and values that serve as indices."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_ir import DataType, Value

from fx_onnx.sizes import symbolic_sizes
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.translation.emitter import Emitter

INT_MAX = 2**63 - 1
INT_MIN = -(2**63)

# A tensor of known content is a constant up to this number of elements; nodes compute a larger one.
MAX_CONSTANT_ELEMENTS = 1024


def broadcast(op: Emitter, value: Value, sizes: Sequence[Size], like: Value | None = None) -> Value:
    """Returns the value expanded to ``sizes``.

    The target shape has a 1 for each axis that keeps its size, so that it is a constant if only static axes grow. It is
    the shape of ``like``, a value of these sizes, if one of them is written as a number that is negative for empty
    inputs.
    """
    if like is not None and any(map(symbolic_sizes.is_written_as_negative, sizes)):
        return op.with_sizes(op.Expand(value, op.Shape(like)), sizes)
    sizes = [symbolic_sizes.static(size) for size in sizes]
    old = op.sizes(value)
    offset = len(sizes) - len(old)
    target = [
        1 if axis >= offset and symbolic_sizes.same_size(old[axis - offset], size) else size
        for axis, size in enumerate(sizes)
    ]
    if offset == 0 and all(isinstance(size, int) and size == 1 for size in target):
        return value
    return op.with_sizes(op.Expand(value, op.shape(target)), sizes)


def as_index(op: Emitter, index: Value) -> Value:
    """Returns an index as INT32 or INT64, the two dtypes that ONNX admits for indices."""
    return index if index.dtype == DataType.INT32 else op.with_sizes(op.cast(index, DataType.INT64), op.sizes(index))


def slice_axis(op: Emitter, value: Value, dim: int, start: Size, end: Size, step: Size = 1) -> Value:
    """Emits Slice along one axis: value[start:end:step]. A step of 1 is written too: onnxscript's fusers need it."""
    result: Value = op.Slice(value, op.shape([start]), op.shape([end]), [dim], op.shape([step]))
    return result


def linear_range(op: Emitter, count: Size, start: Size = 0, step: Size = 1) -> Value:
    """Returns ``count`` INT64 numbers start, start + step, ...: a constant if few, else a Range node."""
    numbers = (count, start, step)
    if all(isinstance(n, int) for n in numbers) and (isinstance(count, int) and count <= MAX_CONSTANT_ELEMENTS):
        return op.constant([start + i * step for i in range(count)], DataType.INT64)
    limit = start + count * step
    values = op.Range(*(op.cast(n, DataType.INT64) for n in (start, limit, step)))
    return op.with_sizes(values, (count,))
