"""Reads and writes by index tensors: x[i, None, mask], x[i] = y, index_select, gather, take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translation.known_sizes import known_sizes
from fx_onnx.translations._known_tensors import filled
from fx_onnx.translations._masked_reads import gather_mask
from fx_onnx.translations._movement import as_index, broadcast

_MASKS = (DataType.BOOL, DataType.UINT8)


class Indices(NamedTuple):
    """The index tensors of one indexing operation, each an INT64 or INT32 tensor for one axis.

    A mask is replaced by the coordinates of its true elements.

    Attributes:
        by_axis: maps an axis of the indexed tensor to its index, in the order of the axes.
        rank: the rank of all indices after broadcasting.
        first_axis: the axis of the result where the axes of the indices begin: the first indexed axis if the indexed
            axes are consecutive, else 0.
    """

    by_axis: dict[int, Value]
    rank: int
    first_axis: int

    def axes_first(self, rank: int) -> list[int]:
        """Returns the axes of the indexed tensor, indexed ones first."""
        return [*self.by_axis, *(axis for axis in range(rank) if axis not in self.by_axis)]


def read_indices(op: Emitter, indices: Sequence[Value | None]) -> Indices:
    """Returns a list of index tensors as ``Indices``; a mask with n axes indexes n axes."""
    by_axis: dict[int, Value] = {}
    axis, rank, runs, inside = 0, 0, 0, False
    for index in indices:
        if index is None:
            axis, inside = axis + 1, False
            continue
        runs, inside = runs + (not inside), True
        for part in _parts(op, index):
            by_axis[axis] = part
            axis, rank = axis + 1, max(rank, op.rank(part))
    return Indices(by_axis, rank, next(iter(by_axis), 0) if runs <= 1 else 0)


def _parts(op: Emitter, index: Value) -> list[Value]:
    """Returns an index as INT32 or INT64; a mask gives one index per axis: the coordinates of its true elements."""
    if index.dtype not in _MASKS:
        return [as_index(op, index)]
    rank = op.rank(index)
    if not rank:
        raise NotImplementedError("A 0-d mask as an index has no translation; use torch.where.")
    places = op.NonZero(op.cast(index, DataType.BOOL))
    if rank == 1:
        return [op.with_sizes(op.Squeeze(places, [0]), (-1,))]
    return [op.with_sizes(op.Gather(places, op.constant(axis), axis=0), (-1,)) for axis in range(rank)]


def coordinates(op: Emitter, indices: Indices, sizes: Sequence[Size]) -> Value:
    """Returns the indices, broadcast to ``sizes``, along a new last axis, as GatherND and ScatterND require."""
    columns = [_broadcast(op, op.cast(index, DataType.INT64), sizes) for index in indices.by_axis.values()]
    return _joined(op, indices, columns)


def _joined(op: Emitter, indices: Indices, columns: Sequence[Value]) -> Value:
    """Returns the indices, which are broadcast to each other as ``columns``, along a new last axis.

    The size of ``i[:1]`` is 1 also for an empty i, and ONNX Runtime's Concat of an empty column and another one reads
    memory that nothing has written. So beside an index that is not computed, a computed one is reshaped to its known
    sizes, which fails where it is empty.
    """
    has_certain_size = any(index.producer() is None for index in indices.by_axis.values())

    def with_last_axis(column: Value) -> Value:
        sizes = known_sizes(column) if has_certain_size and column.producer() is not None else None
        if sizes and all(isinstance(size, int) and size > 0 for size in sizes):
            return op.reshape(column, [*sizes, 1])
        return op.Unsqueeze(column, [-1])

    if len(columns) == 1:
        return op.Unsqueeze(columns[0], [-1])
    return op.Concat(*map(with_last_axis, columns), axis=-1)


def _broadcast(op: Emitter, index: Value, sizes: Sequence[Size]) -> Value:
    """Returns an index broadcast to ``sizes``.

    An index that was computed from a mask has one element for each true element; its ``op.sizes`` is (-1,).
    """
    known = op.sizes(index)
    if len(known) == 1 == len(sizes) and isinstance(known[0], int) and known[0] == -1:
        return index
    if known == (-1,):
        return op.Expand(index, op.shape(sizes))
    return broadcast(op, index, sizes)


def _only_mask(op: Emitter, indices: Sequence[Value | None]) -> tuple[int, Value] | None:
    """Returns the axis and the mask if the indexing is by one mask alone, else None."""
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(given) == 1 and given[0][1].dtype in _MASKS and op.rank(given[0][1]):
        return given[0]
    return None


@translates(aten.index.Tensor, aten._unsafe_index.Tensor)
def aten_index(op: Emitter, self: Value, indices: Sequence[Value | None]) -> Value:
    """Emits Gather for one index, else GatherND with the indexed axes in front; NonZero finds the places of a mask."""
    if (masked := _only_mask(op, indices)) is not None:
        return gather_mask(op, self, *masked)
    read = read_indices(op, indices)
    if not read.by_axis:
        return self
    if len(read.by_axis) == 1:
        ((axis, index),) = read.by_axis.items()
        return op.Gather(self, index, axis=axis)
    rank = op.rank(self)
    shared = op.out_sizes[read.first_axis : read.first_axis + read.rank]
    picked = op.GatherND(op.transpose(self, read.axes_first(rank)), coordinates(op, read, shared))
    if not read.first_axis:
        return picked
    rest = list(range(read.rank, read.rank + rank - len(read.by_axis)))
    return op.transpose(picked, [*rest[: read.first_axis], *range(read.rank), *rest[read.first_axis :]])


# ---------------------------------------------------------------- writes


@translates(aten.index_put.default, aten._unsafe_index_put.default)
def aten_index_put(
    op: Emitter, self: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False
) -> Value:
    """Emits Where for one mask whose true elements get the same values, else ScatterND with indexed axes in front."""
    values = op.cast(values, op.out_dtype)
    mask = _only_mask(op, indices)
    if mask is not None and not accumulate and _is_same_at_every_true_element(op, self, values, *mask):
        return _where_mask(op, self, values, *mask)
    read = read_indices(op, indices)
    if not read.by_axis:
        raise NotImplementedError("index_put without an index has no translation; use copy_.")
    rank = op.rank(self)
    front = read.axes_first(rank)
    order = sorted(range(rank), key=front.__getitem__)
    places = _written_coordinates(op, read)
    rest = [op.sizes(self)[axis] for axis in front[len(read.by_axis) :]]
    values = _updates(op, read, values, places, rest)
    scattered = op.ScatterND(op.transpose(self, front), places, values, reduction="add" if accumulate else None)
    return op.transpose(scattered, order)


@translates(aten._index_put_impl.default)
def aten_index_put_impl(
    op: Emitter,
    self: Value,
    indices: Sequence[Value | None],
    values: Value,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Value:
    """Emits index_put; the flag that skips the check of the indices has no effect in ONNX."""
    return aten_index_put(op, self, indices, values, accumulate)


def _is_same_at_every_true_element(op: Emitter, self: Value, values: Value, axis: int, mask: Value) -> bool:
    """Returns whether all true elements of the mask receive the same values."""
    rest = op.rank(self) - axis - op.rank(mask)
    sizes = op.sizes(values)
    position = len(sizes) - rest - 1  # the axis of values that enumerates the true elements
    return position < 0 or (isinstance(sizes[position], int) and sizes[position] == 1)


def _where_mask(op: Emitter, self: Value, values: Value, axis: int, mask: Value) -> Value:
    """Emits Where with the mask and the values reshaped so that they broadcast to self."""
    rest = op.rank(self) - axis - op.rank(mask)
    condition = op.unsqueeze(op.cast(mask, DataType.BOOL), *range(op.rank(mask), op.rank(mask) + rest))
    if op.rank(values) > rest:  # the axis that enumerates the true elements, of size 1, becomes the axes of the mask
        before = op.sizes(values)[: op.rank(values) - rest - 1]
        after = op.sizes(values)[op.rank(values) - rest :]
        values = op.reshape(values, [*before, *[1] * op.rank(mask), *after])
    return op.Where(condition, values, self)


def _written_coordinates(op: Emitter, read: Indices) -> Value:
    """Returns the written coordinates: the indices broadcast to each other along a new last axis."""
    columns = list(read.by_axis.values())
    if all(op.sizes(column) == (-1,) for column in columns) or _have_same_sizes(op, columns):
        return _joined(op, read, [op.cast(column, DataType.INT64) for column in columns])
    known = [op.sizes(column) for column in columns if op.sizes(column) != (-1,)]
    sizes = np.broadcast_shapes(*known) if len(known) == len(columns) and _are_static(known) else None
    if sizes is not None:
        return coordinates(op, read, sizes)
    shape = _broadcast_shape(op, columns)
    return _joined(op, read, [op.Expand(op.cast(column, DataType.INT64), shape) for column in columns])


def _have_same_sizes(op: Emitter, columns: Sequence[Value]) -> bool:
    first = op.sizes(columns[0])
    return all(
        len(op.sizes(column)) == len(first) and all(map(symbolic_sizes.same_size, op.sizes(column), first))
        for column in columns
    )


def _are_static(shapes: Sequence[Sequence[Size]]) -> bool:
    return all(isinstance(size, int) for sizes in shapes for size in sizes)


def _broadcast_shape(op: Emitter, columns: Sequence[Value]) -> Value:
    """Returns the shape of the columns after broadcasting, computed at run time as the shape of their sum."""
    total = op.cast(columns[0], DataType.INT64)
    for column in columns[1:]:
        total = op.Add(total, op.cast(column, DataType.INT64))
    return op.Shape(total)


def _updates(op: Emitter, read: Indices, values: Value, places: Value, rest: Sequence[Size]) -> Value:
    """Returns the values broadcast to the written part: first the axes of the indices, then those not indexed."""
    rank = read.rank + len(rest)
    shape = op.Concat(op.Shape(places, start=0, end=-1), op.shape(rest), axis=0) if rest else op.Shape(places, end=-1)
    if isinstance(known := _known_broadcast_sizes(op, read), tuple):
        shape = op.shape([*known, *rest])
        if op.rank(values) == rank and not read.first_axis and _are_same_sizes(op.sizes(values), [*known, *rest]):
            return values
    if read.first_axis and op.rank(values):
        values = op.unsqueeze(values, *range(rank - op.rank(values)))
        middle = range(read.first_axis, read.first_axis + read.rank)
        values = op.transpose(values, [*middle, *(axis for axis in range(rank) if axis not in middle)])
    return op.Expand(values, shape)


def _known_broadcast_sizes(op: Emitter, read: Indices) -> tuple[Size, ...] | None:
    """Returns the sizes of the indices after broadcasting, or None if they are known at run time only."""
    columns = list(read.by_axis.values())
    shapes = [op.sizes(column) for column in columns]
    if (-1,) in shapes:
        return None
    if _have_same_sizes(op, columns):
        return shapes[0]
    return tuple(np.broadcast_shapes(*shapes)) if _are_static(shapes) else None


def _are_same_sizes(a: Sequence[Size], b: Sequence[Size]) -> bool:
    return len(a) == len(b) and all(map(symbolic_sizes.same_size, a, b))


# ---------------------------------------------------------------- along one axis


@translates(aten.index_select.default)
def aten_index_select(op: Emitter, self: Value, dim: int, index: Value) -> Value:
    """Emits Gather; a 0-d index keeps the axis."""
    if not op.rank(self):
        return self
    return op.Gather(self, index if op.rank(index) else op.unsqueeze(index, 0), axis=dim)


@translates(aten.gather.default)
def aten_gather(op: Emitter, self: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    """Emits GatherElements: out[i, j] = self[index[i, j], j] for dim 0; a 0-d tensor becomes 1-d first."""
    if any(symbolic_sizes.same_size(size, 0) for size in op.sizes(index)):
        return filled(op, op.out_sizes, 0, op.out_dtype)
    at_least_1d = [x if op.rank(x) else op.unsqueeze(x, 0) for x in (self, as_index(op, index))]
    picked = op.GatherElements(*at_least_1d, axis=dim)
    return picked if op.rank(index) else op.squeeze(op.with_sizes(picked, (1,)), 0)


@translates(aten.take.default)
def aten_take(op: Emitter, self: Value, index: Value) -> Value:
    """Emits Gather of the flattened tensor."""
    return op.Gather(_flat(op, self), index, axis=0)


@translates(aten.take_along_dim.default)
def aten_take_along_dim(op: Emitter, self: Value, indices: Value, dim: int | None = None) -> Value:
    """Emits GatherElements with self and indices broadcast to each other in all axes but dim.

    Without dim, both are flattened.
    """
    if dim is None:
        return op.GatherElements(_flat(op, self), _flat(op, indices), axis=0)
    rank = op.rank(self)
    axis = dim % rank if rank else 0
    sizes = list(op.out_sizes)
    along = [op.sizes(x)[axis] for x in (self, indices)] if rank else []
    if not rank:
        return op.reshape(op.Gather(op.unsqueeze(self, 0), indices, axis=0), sizes)
    parts = [
        broadcast(op, x, [*sizes[:axis], n, *sizes[axis + 1 :]]) for x, n in zip((self, indices), along, strict=True)
    ]
    return op.GatherElements(*parts, axis=axis)


def _flat(op: Emitter, value: Value) -> Value:
    return value if op.rank(value) == 1 else op.Reshape(value, [-1])
