"""Masks: masked_fill, masked_select, masked_scatter, nonzero and where with one argument."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter, Scalar
from fx_onnx.translations._masked_reads import gather_mask
from fx_onnx.translations._movement import broadcast, slice_axis


@translates(aten.masked_fill.Scalar)
def aten_masked_fill(op: Emitter, self: Value, mask: Value, value: Scalar) -> Value:
    """Emits Where: value where the mask is true, else self."""
    return op.Where(op.cast(mask, DataType.BOOL), op.cast(value, op.out_dtype), self)


@translates(aten.masked_fill.Tensor)
def aten_masked_fill_tensor(op: Emitter, self: Value, mask: Value, value: Value) -> Value:
    """Emits Where with a 0-d value."""
    return op.Where(op.cast(mask, DataType.BOOL), op.cast(value, op.out_dtype), self)


@translates(aten.masked_select.default)
def aten_masked_select(op: Emitter, self: Value, mask: Value) -> Value:
    """Emits NonZero and Gather or GatherND, after self and mask are broadcast to each other."""
    mask = op.cast(mask, DataType.BOOL)
    if not _have_same_static_sizes(op, self, mask):
        sizes, rank = _broadcast_sizes(op, self, mask), max(op.rank(self), op.rank(mask))
        self, mask = (op.with_sizes(op.Expand(x, sizes), (-1,) * rank) for x in (self, mask))
    if not op.rank(self):
        self, mask = op.unsqueeze(self, 0), op.unsqueeze(mask, 0)
    return gather_mask(op, self, 0, mask)


def _have_same_static_sizes(op: Emitter, a: Value, b: Value) -> bool:
    """Returns whether both values have the same static sizes."""
    return op.sizes(a) == op.sizes(b) and all(isinstance(size, int) for size in op.sizes(a))


def _broadcast_sizes(op: Emitter, self: Value, mask: Value) -> Value:
    """Returns the sizes of self and mask after broadcasting, computed at run time unless they are static."""
    shapes = (op.sizes(self), op.sizes(mask))
    if all(isinstance(size, int) for sizes in shapes for size in sizes):
        return op.shape(np.broadcast_shapes(*shapes))
    rank = max(map(len, shapes))
    padded = [
        shape if len(sizes) == rank else op.Concat([1] * (rank - len(sizes)), shape, axis=0)
        for sizes, shape in zip(shapes, (op.shape(shapes[0]), op.shape(shapes[1])), strict=True)
    ]
    # The broadcast size is the larger of the two sizes, except that 1 and 0 give 0.
    larger = op.Max(*padded)
    return op.Where(op.Equal(op.Min(*padded), [0]), op.constant([0]), larger)


@translates(aten.masked_scatter.default)
def aten_masked_scatter(op: Emitter, self: Value, mask: Value, source: Value) -> Value:
    """Emits Where with the elements of source, in order, at the true elements of the mask.

    The k-th true element gets the k-th element of source; a CumSum over the flattened mask gives k.
    """
    mask = broadcast(op, op.cast(mask, DataType.BOOL), op.out_sizes)
    if not op.rank(mask):
        first = op.Gather(op.Reshape(source, [-1]), op.constant(0), axis=0)
        return op.Where(mask, first, self)
    flat = op.cast(op.Reshape(mask, [-1]), DataType.INT64)
    number = op.Max(op.Sub(op.CumSum(flat, op.constant(0)), 1), op.constant(0))
    picked = op.Gather(
        op.Concat(op.Reshape(source, [-1]), op.cast(op.constant([0]), op.out_dtype), axis=0), number, axis=0
    )
    return op.Where(mask, op.Reshape(picked, op.shape(op.out_sizes)), broadcast(op, self, op.out_sizes))


# ---------------------------------------------------------------- coordinates of nonzero elements


@translates(aten.nonzero.default, aten.argwhere.default)
def aten_nonzero(op: Emitter, self: Value) -> Value:
    """Emits NonZero and Transpose: a row of coordinates for each nonzero element; NaN counts as nonzero."""
    if not op.rank(self):
        places = op.NonZero(op.unsqueeze(self, 0))
        return _no_columns(op, places)
    return op.Transpose(op.NonZero(self), perm=[1, 0])


def _no_columns(op: Emitter, places: Value) -> Value:
    """Returns one row for each place, without columns, as torch does for a 0-d tensor."""
    return op.Slice(op.Transpose(places, perm=[1, 0]), [0], [0], [1])


@translates(aten.nonzero_numpy.default)
def aten_nonzero_numpy(op: Emitter, self: Value) -> Sequence[Value]:
    """Emits NonZero and a Gather for each axis."""
    return _coordinates(op, self)


@translates(aten.where.default)
def aten_where(op: Emitter, condition: Value) -> Sequence[Value]:
    """Emits NonZero and a Gather for each axis."""
    return _coordinates(op, condition)


def _coordinates(op: Emitter, self: Value) -> Sequence[Value]:
    places = op.NonZero(self if op.rank(self) else op.unsqueeze(self, 0))
    return [op.Gather(places, op.constant(axis), axis=0) for axis in range(len(op.out))]


@translates(aten.nonzero_static.default)
def aten_nonzero_static(op: Emitter, self: Value, *, size: Size, fill_value: int = -1) -> Value:
    """Emits the first ``size`` rows of nonzero, filled up with rows of fill_value."""
    rows = aten_nonzero(op, self)
    filler = op.Expand(op.constant(fill_value, DataType.INT64), op.shape(op.out_sizes))
    return slice_axis(op, op.Concat(rows, filler, axis=0), 0, 0, size)
