"""Writes at indices: ScatterElements and ScatterND."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from onnx_ir import DataType, Value

import fx_onnx.torch_internals.custom_ops  # noqa: F401  defines fill_diagonal
from fx_onnx.extension_points.translation_table import translates
from fx_onnx.onnx_model import dtypes
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter, Scalar
from fx_onnx.translations._movement import as_index, broadcast, linear_range

_REDUCTIONS = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min"}


def scatter(
    op: Emitter, self: Value, dim: int, index: Value, src: Value | Scalar, reduction: str | None = None
) -> Value:
    """Emits ScatterElements that writes, or accumulates, src at the indices along dim.

    A 0-d tensor becomes 1-d first. A src that is larger than index is sliced to its sizes. Booleans accumulate as
    integers.
    """
    if any(symbolic_sizes.same_size(size, 0) for size in op.sizes(index)):
        return self
    dtype = self.dtype
    if dtype == DataType.BOOL and reduction is not None:
        self = op.cast(self, DataType.INT32)
    kind = self.dtype or op.out_dtype
    scalar = not op.rank(self)
    self, index = (op.unsqueeze(x, 0) if not op.rank(x) else x for x in (self, as_index(op, index)))
    if isinstance(src, Value):
        updates = op.cast(src, kind)
        updates = _sliced_to(op, updates if op.rank(src) else op.unsqueeze(updates, 0), op.sizes(index))
    else:
        updates = op.with_sizes(op.cast(op.cast(src, op.out_dtype), kind), ())
        updates = broadcast(op, updates, op.sizes(index))
    written = op.ScatterElements(self, index, updates, axis=dim, reduction=reduction)
    if scalar:
        written = op.squeeze(op.with_sizes(written, (1,)), 0)
    return written if dtype is None else op.cast(written, dtype)


def _sliced_to(op: Emitter, src: Value, sizes: Sequence[Size]) -> Value:
    """Returns src sliced to ``sizes``."""
    axes = [
        i
        for i, (have, want) in enumerate(zip(op.sizes(src), sizes, strict=True))
        if not symbolic_sizes.same_size(have, want)
    ]
    if not axes:
        return src
    return op.Slice(src, [0] * len(axes), op.shape([sizes[axis] for axis in axes]), axes)


@translates(aten.scatter.src)
def aten_scatter(op: Emitter, self: Value, dim: int, index: Value, src: Value) -> Value:
    """Emits ScatterElements: self[index[i, j], j] = src[i, j] for dim 0."""
    return scatter(op, self, dim, index, src)


@translates(aten.scatter.value)
def aten_scatter_value(op: Emitter, self: Value, dim: int, index: Value, value: Scalar) -> Value:
    """Emits ScatterElements: self[index[i, j], j] = value for dim 0."""
    return scatter(op, self, dim, index, value)


@translates(aten.scatter.reduce)
def aten_scatter_reduce_src(op: Emitter, self: Value, dim: int, index: Value, src: Value, *, reduce: str) -> Value:
    """Emits ScatterElements that adds or multiplies: self[index[i, j], j] += src[i, j] for dim 0."""
    return scatter(op, self, dim, index, src, _REDUCTIONS[reduce])


@translates(aten.scatter.value_reduce)
def aten_scatter_reduce_value(op: Emitter, self: Value, dim: int, index: Value, value: Scalar, *, reduce: str) -> Value:
    """Emits ScatterElements that adds or multiplies: self[index[i, j], j] += value for dim 0."""
    return scatter(op, self, dim, index, value, _REDUCTIONS[reduce])


@translates(aten.scatter_add.default)
def aten_scatter_add(op: Emitter, self: Value, dim: int, index: Value, src: Value) -> Value:
    """Emits ScatterElements that adds: self[index[i, j], j] += src[i, j] for dim 0."""
    return scatter(op, self, dim, index, src, "add")


def _is_onnx_reduction(reduce: str, include_self: bool = True) -> bool:
    """Returns whether ONNX has the reduction; its reductions always include self."""
    return include_self and reduce in _REDUCTIONS


@translates(aten.scatter_reduce.two, supports=_is_onnx_reduction)
def aten_scatter_reduce(
    op: Emitter, self: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """Emits ScatterElements that reduces self and the elements of src with the same index."""
    return scatter(op, self, dim, index, src, _REDUCTIONS[reduce])


# ---------------------------------------------------------------- whole slices along one axis


@translates(aten.index_add.default)
def aten_index_add(op: Emitter, self: Value, dim: int, index: Value, source: Value, *, alpha: Scalar = 1) -> Value:
    """Emits a scatter that adds: self[index[i]] += alpha * source[i] for dim 0."""
    if alpha != 1:
        dtype = source.dtype or op.out_dtype
        factor = dtypes.wrapped(alpha, dtype) if isinstance(alpha, int) and dtypes.is_integer(dtype) else alpha
        scaled = op.And(source, bool(alpha)) if dtype == DataType.BOOL else op.Mul(source, op.cast(factor, dtype))
        source = op.with_sizes(scaled, op.sizes(source))
    return _index_write(op, self, dim, index, source, "add")


@translates(aten.index_copy.default)
def aten_index_copy(op: Emitter, self: Value, dim: int, index: Value, source: Value) -> Value:
    """Emits a scatter: self[index[i]] = source[i] for dim 0."""
    return _index_write(op, self, dim, index, source)


@translates(aten.index_fill.int_Scalar)
def aten_index_fill(op: Emitter, self: Value, dim: int, index: Value, value: Scalar) -> Value:
    """Emits a scatter: self[index[i]] = value for dim 0."""
    return _index_write(op, self, dim, index, op.with_sizes(op.cast(value, op.out_dtype), ()))


@translates(aten.index_fill.int_Tensor)
def aten_index_fill_tensor(op: Emitter, self: Value, dim: int, index: Value, value: Value) -> Value:
    """Emits a scatter of a 0-d value: self[index[i]] = value for dim 0."""
    return _index_write(op, self, dim, index, op.cast(value, op.out_dtype))


def _sizes_of_source(op: Emitter, self: Value, dim: int, index: Value) -> list[Size]:
    """Returns the sizes of the slices that ``index`` selects along dim."""
    sizes = list(op.sizes(self))
    if sizes:
        sizes[dim] = op.sizes(index)[0] if op.rank(index) else 1
    return sizes


def _index_write(
    op: Emitter, self: Value, dim: int, index: Value, source: Value, reduction: str | None = None
) -> Value:
    """Emits ScatterND along the first axis; along another axis, ScatterElements with the index broadcast."""
    rank = op.rank(self)
    sizes = _sizes_of_source(op, self, dim, index)
    index = index if op.rank(index) else op.unsqueeze(index, 0)
    source = broadcast(op, op.cast(source, op.out_dtype), sizes) if op.rank(source) != rank or not rank else source
    if rank and dim % rank == 0 and self.dtype != DataType.BOOL:
        places = op.unsqueeze(op.cast(index, DataType.INT64), 1)
        return op.ScatterND(self, places, source, reduction=reduction)
    if rank > 1:
        index = op.unsqueeze(index, *(axis for axis in range(rank) if axis != dim % rank))
        index = broadcast(op, index, sizes)
    return scatter(op, self, dim, index, source, reduction)


def _is_index_reduction(self: torch.Tensor, reduce: str, include_self: bool = True) -> bool:
    """Returns whether the reduction is one of ONNX's, which include self, or a mean of floats."""
    return (include_self and reduce in _REDUCTIONS) or (reduce == "mean" and self.is_floating_point())


@translates(aten.index_reduce.default, supports=_is_index_reduction)
def aten_index_reduce(
    op: Emitter, self: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """Emits a scatter with a reduction; a mean is computed as a sum divided by a count."""
    if reduce != "mean":
        return _index_write(op, self, dim, index, source, _REDUCTIONS[reduce])
    zero = op.with_sizes(op.cast(0, op.out_dtype), ())
    base = self if include_self else op.with_sizes(_index_write(op, self, dim, index, zero), op.out_sizes)
    total = _index_write(op, base, dim, index, source, "add")
    ones = broadcast(op, op.with_sizes(op.cast(1, op.out_dtype), ()), op.sizes(source))
    initial_counts = broadcast(op, op.with_sizes(op.cast(int(include_self), op.out_dtype), ()), op.out_sizes)
    counts = op.Max(_index_write(op, initial_counts, dim, index, ones, "add"), 1)
    return op.Div(total, counts)


@translates(aten.put.default)
def aten_put(op: Emitter, self: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    """Emits ScatterElements on the flattened tensor."""
    count = symbolic_sizes.static(op.out[0].numel())
    places, updates = (op.reshape(x, [_element_count(op, x)]) for x in (index, source))
    written = scatter(op, op.reshape(self, [count]), 0, places, updates, "add" if accumulate else None)
    return op.reshape(op.with_sizes(written, (count,)), op.out_sizes)


def _element_count(op: Emitter, value: Value) -> Size:
    count: Size = 1
    for size in op.sizes(value):
        count = symbolic_sizes.static(count * size)
    return count


@translates(torch.ops.fx_onnx.fill_diagonal.default)
def fx_onnx_fill_diagonal(op: Emitter, self: Value, fill_value: Scalar, wrap: bool = False) -> Value:
    """Emits Where: fill_value where all indices are equal.

    With wrap, every (columns + 1)th element of the flattened matrix is filled, so that the diagonal of a tall matrix
    starts again.
    """
    sizes = op.sizes(self)
    places = [
        op.unsqueeze(linear_range(op, size), *(other for other in range(len(sizes)) if other != axis))
        for axis, size in enumerate(sizes)
    ]
    if wrap and len(sizes) == 2:
        flat = op.Add(op.Mul(places[0], op.cast(sizes[1], DataType.INT64)), places[1])
        chosen = op.Equal(op.Mod(flat, op.cast(sizes[1] + 1, DataType.INT64)), 0)
    else:
        chosen = op.Equal(places[0], places[1])
        for positions in places[2:]:
            chosen = op.And(chosen, op.Equal(places[0], positions))
    return op.Where(chosen, op.cast(fill_value, op.out_dtype), self)
