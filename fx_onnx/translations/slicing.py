"""Slices: reads of a part along one axis, and writes of a part."""

from __future__ import annotations

import torch
from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translation.known_sizes import record_sizes
from fx_onnx.translations._movement import INT_MAX, broadcast, linear_range, slice_axis


@translates(aten.slice.Tensor, aten.slice_copy.Tensor)
def aten_slice(
    op: Emitter, self: Value, dim: int = 0, start: Size | None = None, end: Size | None = None, step: Size = 1
) -> Value:
    """Emits Slice, which clamps the ends as Python does; a slice of the whole axis is self."""
    if symbolic_sizes.same_size(op.out_sizes[dim], op.sizes(self)[dim]):
        return self
    return slice_axis(op, self, dim, 0 if start is None else start, INT_MAX if end is None else end, step)


@translates(aten.select.int, aten.select_copy.int)
def aten_select(op: Emitter, self: Value, dim: int, index: Size) -> Value:
    """Emits Gather of one index, which removes the axis."""
    return op.Gather(self, op.cast(index, DataType.INT64), axis=dim)


@translates(aten.narrow.default, aten.narrow_copy.default)
def aten_narrow(op: Emitter, self: Value, dim: int, start: Size, length: Size) -> Value:
    """Emits Slice: self[start : start + length] along dim; two where the start may count from the end."""
    size = op.sizes(self)[dim]
    if symbolic_sizes.same_size(length, size):
        return self
    if isinstance(start, int) and start < 0:
        start = start + size
    if not symbolic_sizes.expression(start).is_nonnegative:
        return slice_axis(op, slice_axis(op, self, dim, start, INT_MAX), dim, 0, length)
    return slice_axis(op, self, dim, start, start + length)


# ---------------------------------------------------------------- writes of a part


@translates(aten.slice_scatter.default)
def aten_slice_scatter(
    op: Emitter,
    self: Value,
    src: Value,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: Size = 1,
) -> Value:
    """Emits Concat of src with the parts before and after it; for other steps than 1, ScatterND."""
    size, length = op.sizes(self)[dim], op.sizes(src)[dim]
    src = op.cast(src, op.out_dtype)
    if symbolic_sizes.same_size(size, length):
        return broadcast(op, src, op.out_sizes)
    if symbolic_sizes.same_size(length, 0):
        return self
    if isinstance(length, int) and not isinstance(size, int):
        src = record_sizes(slice_axis(op, src, dim, 0, size), op.sizes(src))  # torch takes no axis as empty
    if isinstance(step, int) and step == 1:
        return _concatenated(op, self, src, dim, 0 if start is None else start, INT_MAX if end is None else end)
    return _scatter_steps(op, self, src, dim, 0 if start is None else start, INT_MAX if end is None else end, step)


@translates(aten.select_scatter.default)
def aten_select_scatter(op: Emitter, self: Value, src: Value, dim: int, index: Size) -> Value:
    """Emits Concat of src with the parts before and after it; ScatterND at an index that may count from the end."""
    dim = dim % op.rank(self)
    size = op.sizes(self)[dim]
    part = op.unsqueeze(op.cast(src, op.out_dtype), dim)
    if symbolic_sizes.same_size(size, 1):
        return part
    if isinstance(index, int) and index < 0:
        after: Size = INT_MAX if index == -1 else index + 1
    elif not symbolic_sizes.expression(index).is_nonnegative:
        return _scattered(op, self, part, dim, op.shape([index]))
    else:
        after = index + 1
    return _concatenated(op, self, part, dim, index, after)


def _concatenated(op: Emitter, self: Value, src: Value, dim: int, start: Size, end: Size) -> Value:
    """Emits Concat of the part before start, src, and the part after end; a part known to be empty is left out."""
    size, length = op.sizes(self)[dim], op.sizes(src)[dim]
    parts = [src]
    first = isinstance(start, int) and (start == 0 or (isinstance(size, int) and start <= -size))
    last = (isinstance(end, int) and end >= (size if isinstance(size, int) else INT_MAX)) or (
        symbolic_sizes.same_size(end, size) or (first and symbolic_sizes.same_size(length, size))
    )
    if not first:
        parts.insert(0, slice_axis(op, self, dim, 0, start))
    if not last:
        parts.append(slice_axis(op, self, dim, end if first else _end_of(start, end, size), INT_MAX))
    if len(parts) == 1:
        return src
    result: Value = op.Concat(*parts, axis=dim)
    return result


def _end_of(start: Size, end: Size, size: Size) -> Size:
    """Returns where a slice of an axis ends: at its start, if it is empty because its end is before its start.

    What torch knows of the sizes of the example, such as ``n // 2 >= 1``, need not hold for others.
    """
    if isinstance(start, int) and isinstance(end, int) and (start < 0) == (end < 0):
        return max(start, end)
    if symbolic_sizes.expression(start).is_nonnegative and symbolic_sizes.expression(end - start).is_nonnegative:
        return end
    after: Size = torch.sym_max(_position(start, size), _position(end, size))
    return after


def _position(bound: Size, size: Size) -> Size:
    """Returns the position of a bound that may count from the end; it may be after the end of the axis."""
    if symbolic_sizes.expression(bound).is_nonnegative:
        return bound
    is_negative = 1 if isinstance(bound, int) else torch.sym_min(torch.sym_max(-bound, 0), 1)
    position: Size = torch.sym_max(bound + is_negative * size, 0)
    return position


def _scatter_steps(op: Emitter, self: Value, src: Value, dim: int, start: Size, end: Size, step: Size) -> Value:
    """Emits ScatterND at start, start + step, ..."""
    size = op.sizes(self)[dim]
    if isinstance(start, int) and isinstance(size, int):
        start = max(0, start + size) if start < 0 else start
    if symbolic_sizes.expression(start).is_nonnegative:
        indices = linear_range(op, op.sizes(src)[dim], start, step)
    else:  # the slice of all positions has the clamped start
        indices = slice_axis(op, linear_range(op, size, 0, 1), 0, start, end, step)
    return _scattered(op, self, src, dim % op.rank(self), indices)


def _scattered(op: Emitter, self: Value, src: Value, dim: int, indices: Value) -> Value:
    """Emits ScatterND, which indexes leading axes, so dim is moved to the front first."""
    front = [dim, *(axis for axis in range(op.rank(self)) if axis != dim)]
    scattered = op.ScatterND(op.transpose(self, front), op.unsqueeze(indices, 1), op.transpose(src, front))
    return op.transpose(scattered, sorted(front, key=front.__getitem__))
