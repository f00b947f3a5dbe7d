"""What several families of operators need beyond the emitter's helpers."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_ir import DataType, Value

from fx_onnx.core import symbolic_sizes
from fx_onnx.core.symbolic_sizes import Size
from fx_onnx.translation.emitter import Emitter

INT_MAX = 2**63 - 1
INT_MIN = -(2**63)

# Up to how many elements a tensor of known content is a constant of the graph instead of a node that makes it.
MAX_CONSTANT_ELEMENTS = 1024


def broadcast(op: Emitter, value: Value, sizes: Sequence[Size]) -> Value:
    """The value broadcast to ``sizes``; the axes that keep their size are 1 in the shape, which is often a constant."""
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
    """An index in one of the two dtypes that ONNX takes for indices."""
    return index if index.dtype == DataType.INT32 else op.with_sizes(op.cast(index, DataType.INT64), op.sizes(index))


def slice_axis(op: Emitter, value: Value, dim: int, start: Size, end: Size, step: Size = 1) -> Value:
    """value[start:end:step] along one axis."""
    steps = None if isinstance(step, int) and step == 1 else op.shape([step])
    result: Value = op.Slice(value, op.shape([start]), op.shape([end]), [dim], steps)
    return result


def linear_range(op: Emitter, count: Size, start: Size = 0, step: Size = 1) -> Value:
    """start, start + step … of ``count`` INT64 numbers: a constant where it is known and small."""
    numbers = (count, start, step)
    if all(isinstance(n, int) for n in numbers) and (isinstance(count, int) and count <= MAX_CONSTANT_ELEMENTS):
        return op.constant([start + i * step for i in range(count)], DataType.INT64)
    limit = start + count * step
    values = op.Range(*(op.scalar(n, DataType.INT64) for n in (start, limit, step)))
    return op.with_sizes(values, (count,))
