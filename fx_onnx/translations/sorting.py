"""Sorting, the largest elements, and distinct elements: TopK and Unique."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.onnx_model import metadata
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translations._widening import widened


def top(op: Emitter, self: Value, k: Size, dim: int, largest: bool, ordered: bool = True) -> list[Value]:
    """Emits TopK, which keeps the order of equal elements, so that sorting with it is stable.

    A 0-d tensor is returned unchanged, with the index 0; so does PyTorch, also if k is 0.
    """
    if not op.rank(self):
        return [self, op.constant(0, DataType.INT64)]
    values, indices = op.TopK(
        widened(op, "TopK", self), op.shape([k]), axis=dim, largest=int(largest), sorted=int(ordered)
    )
    return [op.cast(values, op.out_dtype) if self.dtype is None else op.cast(values, self.dtype), indices]


@translates(aten.topk.default)
def aten_topk(
    op: Emitter, self: Value, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Sequence[Value]:
    """Emits TopK: the k largest or smallest elements along dim and their indices."""
    return top(op, self, k, dim, largest, sorted)


@translates(aten.sort.default)
def aten_sort(op: Emitter, self: Value, dim: int = -1, descending: bool = False) -> Sequence[Value]:
    """Emits TopK of all elements."""
    return top(op, self, op.sizes(self)[dim] if op.rank(self) else 1, dim, descending)


@translates(aten.sort.stable)
def aten_sort_stable(
    op: Emitter, self: Value, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> Sequence[Value]:
    """Emits TopK of all elements, which is stable."""
    return top(op, self, op.sizes(self)[dim] if op.rank(self) else 1, dim, descending)


@translates(aten.argsort.default)
def aten_argsort(op: Emitter, self: Value, dim: int = -1, descending: bool = False) -> Value:
    """Emits TopK of all elements and returns the indices."""
    return top(op, self, op.sizes(self)[dim] if op.rank(self) else 1, dim, descending)[1]


@translates(aten.argsort.stable)
def aten_argsort_stable(op: Emitter, self: Value, *, stable: bool, dim: int = -1, descending: bool = False) -> Value:
    """Emits TopK of all elements, which is stable, and returns the indices."""
    return top(op, self, op.sizes(self)[dim] if op.rank(self) else 1, dim, descending)[1]


@translates(aten.msort.default)
def aten_msort(op: Emitter, self: Value) -> Value:
    """Emits TopK of all elements along the first axis."""
    return top(op, self, op.sizes(self)[0] if op.rank(self) else 1, 0, False)[0]


# ---------------------------------------------------------------- distinct elements


@translates(aten._unique2.default)
def aten_unique2(
    op: Emitter, self: Value, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Sequence[Value]:
    """Emits Unique of the flattened tensor: values, inverse indices and counts."""
    values, inverse, counts = unique(op, self, None)
    return _requested(op, [values, op.reshape(inverse, op.sizes(self)), counts], return_inverse, return_counts)


def _requested(op: Emitter, results: list[Value], return_inverse: bool, return_counts: bool) -> Sequence[Value]:
    """Returns the results, with an empty tensor for each that was not requested, as torch does."""
    empty = op.constant([], DataType.INT64)
    return [results[0], results[1] if return_inverse else empty, results[2] if return_counts else empty]


@translates(aten._unique.default)
def aten_unique(op: Emitter, self: Value, sorted: bool = True, return_inverse: bool = False) -> Sequence[Value]:
    """Emits Unique of the flattened tensor: values and inverse indices."""
    values, inverse, counts = unique(op, self, None)
    return _requested(op, [values, op.reshape(inverse, op.sizes(self)), counts], return_inverse, False)[:2]


@translates(aten.unique_dim.default)
def aten_unique_dim(
    op: Emitter, self: Value, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Sequence[Value]:
    """Emits Unique of the slices along dim: values, inverse indices and counts."""
    return unique(op, self, dim)


def unique(op: Emitter, self: Value, dim: int | None) -> list[Value]:
    """Emits Unique and returns the values, the inverse indices and the counts."""
    values, _, inverse, counts = op.Unique(widened(op, "Unique", self), axis=dim, sorted=1, outputs=4)
    metadata.note_dynamic_axes(values, op.sizes(self))
    return [op.cast(values, op.out_dtype), inverse, counts]


@translates(aten.unique_consecutive.default)
def aten_unique_consecutive(
    op: Emitter, self: Value, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Sequence[Value]:
    """Emits Gather of the first element of each run, or of the first slice of each run along dim.

    The other results are inverse indices and counts. Along dim, torch computes them also if they are not requested.
    """
    if dim is None or not op.rank(self):
        flat = self if op.rank(self) == 1 else op.with_sizes(op.Reshape(self, [-1]), (-1,))
        values, inverse, counts = _consecutive(op, flat, 0)
        results = [values, op.reshape(inverse, op.sizes(self)), counts]
        return _requested(op, results, return_inverse, return_counts)
    return _consecutive(op, self, dim)


@translates(aten.unique_dim_consecutive.default)
def aten_unique_dim_consecutive(
    op: Emitter, self: Value, dim: int, return_inverse: bool = False, return_counts: bool = False
) -> Sequence[Value]:
    """Emits Gather of the first slice of each run along dim; returns inverse indices and counts as well."""
    return _consecutive(op, self, dim)


def _consecutive(op: Emitter, self: Value, dim: int) -> list[Value]:
    """Returns the first elements of the runs, inverse indices and counts.

    A run starts where an element differs from the one before. A CumSum over the starts numbers the runs.
    """
    rank = op.rank(self)
    dim = dim % rank
    later, earlier = op.Slice(self, [1], [2**63 - 1], [dim]), op.Slice(self, [0], [-1], [dim])
    differs = op.cast(op.Not(op.Equal(later, earlier)), DataType.INT64)
    if rank > 1:
        differs = op.ReduceMax(differs, [axis for axis in range(rank) if axis != dim], keepdims=0)
    size = op.Shape(self, start=dim, end=dim + 1)
    first = op.Expand(op.constant([1]), op.Min(size, op.constant([1])))  # an empty tensor has no runs
    begins = op.Concat(first, differs, axis=0)
    inverse = op.Sub(op.CumSum(begins, op.constant(0)), 1)
    places = op.Squeeze(op.NonZero(begins), [0])
    values = op.Gather(self, places, axis=dim)
    ends = op.Concat(op.Slice(places, [1], [2**63 - 1], [0]), op.Slice(size, [0], op.Shape(first), [0]), axis=0)
    return [values, inverse, op.Sub(ends, places)]
