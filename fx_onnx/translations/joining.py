"""Concatenation, splits, repetition, windows, diagonals and triangles."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_private import statically_known_true
from fx_onnx.translation.emitter import Emitter, as_tuple
from fx_onnx.translations._movement import INT_MAX, INT_MIN, MAX_CONSTANT_ELEMENTS, linear_range, slice_axis

# ---------------------------------------------------------------- joins


@translates(aten.cat.default, aten.concat.default, aten.concatenate.default)
def aten_cat(op: Emitter, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Emits Concat. Tensors of sizes (0,) are left out, because torch admits them next to tensors of any rank."""
    rank = len(op.out_sizes)
    joined = [x for x in tensors if op.rank(x) == rank and not (_is_empty_vector(op.sizes(x)) and len(tensors) > 1)]
    if not joined:
        return op.cast(tensors[0], op.out_dtype)
    parts = op.promote(*joined, dtype=op.out[0].dtype)
    return parts[0] if len(parts) == 1 else op.Concat(*parts, axis=dim)


def _is_empty_vector(sizes: Sequence[Size]) -> bool:
    """Returns whether the sizes are (0,); a symbolic size is not compared, because that would specialize it."""
    return len(sizes) == 1 and isinstance(sizes[0], int) and sizes[0] == 0


@translates(aten.stack.default)
def aten_stack(op: Emitter, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Emits Concat of the tensors along a new axis."""
    axis = dim % len(op.out_sizes)
    parts = [op.unsqueeze(x, axis) for x in op.promote(*tensors, dtype=op.out[0].dtype)]
    return parts[0] if len(parts) == 1 else op.Concat(*parts, axis=axis)


# ---------------------------------------------------------------- splits


@translates(aten.split.Tensor, aten.unsafe_split.Tensor, aten.split_copy.Tensor)
def aten_split(op: Emitter, self: Value, split_size: Size, dim: int = 0) -> Sequence[Value]:
    """Emits Split into pieces of split_size; the last one may be smaller."""
    return _pieces(op, self, dim)


@translates(aten.split.sizes)
def aten_split_sizes(op: Emitter, self: Value, split_size: Sequence[Size], dim: int = 0) -> Sequence[Value]:
    """Emits Split into pieces of the given sizes."""
    return _pieces(op, self, dim)


@translates(
    aten.split_with_sizes.default, aten.unsafe_split_with_sizes.default, aten.split_with_sizes_copy.default
)  # fmt: skip
def aten_split_with_sizes(op: Emitter, self: Value, split_sizes: Sequence[Size], dim: int = 0) -> Sequence[Value]:
    """Emits Split into pieces of the given sizes."""
    return _pieces(op, self, dim)


@translates(aten.chunk.default, aten.unsafe_chunk.default)
def aten_chunk(op: Emitter, self: Value, chunks: int, dim: int = 0) -> Sequence[Value]:
    """Emits Split into pieces of ceil(size / chunks).

    ONNX Split with num_outputs cuts the axis by the same rule. For a dynamic size it is used if there are as many
    pieces as ``chunks``, because the sizes of the pieces then need not be computed. It refuses an empty axis.
    """
    size = op.sizes(self)[dim]
    if len(op.out) == chunks > 1 and not isinstance(size, int) and not symbolic_sizes.may_be_empty(size):
        return as_tuple(op.Split(self, axis=dim, num_outputs=chunks, outputs=chunks))
    return _pieces(op, self, dim)


@translates(aten.tensor_split.sections)
def aten_tensor_split(op: Emitter, self: Value, sections: Size, dim: int = 0) -> Sequence[Value]:
    """Emits Split; the first pieces are larger by one if the size is not divisible."""
    return _pieces(op, self, dim)


@translates(aten.tensor_split.indices)
def aten_tensor_split_indices(op: Emitter, self: Value, indices: Sequence[Size], dim: int = 0) -> Sequence[Value]:
    """Emits Split at the indices, or a Slice for each piece if the pieces overlap."""
    ends = [0, *indices, INT_MAX]
    if all(symbolic_sizes.same_size(sum(_sizes_along(op, dim)[:i]), end) for i, end in enumerate(ends[:-1])):
        return _pieces(op, self, dim)
    return [slice_axis(op, self, dim, start, end) for start, end in pairwise(ends)]


@translates(aten.tensor_split.tensor_indices_or_sections)
def aten_tensor_split_tensor(
    op: Emitter, self: Value, tensor_indices_or_sections: Value, dim: int = 0
) -> Sequence[Value]:
    """Emits a Slice for each piece between the indices of a tensor; capture fixes the number of pieces."""
    if not op.rank(tensor_indices_or_sections):
        return _pieces(op, self, dim)
    ends = op.Concat([0], op.cast(tensor_indices_or_sections, DataType.INT64), [INT_MAX], axis=0)
    limits = [op.Slice(ends, [i], [i + 1], [0]) for i in range(len(op.out) + 1)]
    return [op.Slice(self, start, end, [dim]) for start, end in pairwise(limits)]


def _sizes_along(op: Emitter, dim: int) -> list[Size]:
    return [symbolic_sizes.static(piece.shape[dim]) for piece in op.out]


def _pieces(op: Emitter, self: Value, dim: int) -> Sequence[Value]:
    """Emits Split with the sizes of the FX results."""
    sizes = _sizes_along(op, dim)
    if len(sizes) == 1:
        return [self]
    if symbolic_sizes.same_size(op.sizes(self)[dim], 0):
        return [self] * len(sizes)
    return as_tuple(op.Split(self, op.shape(sizes), axis=dim, outputs=len(sizes)))


@translates(aten.unbind.int, aten.unbind_copy.int)
def aten_unbind(op: Emitter, self: Value, dim: int = 0) -> Sequence[Value]:
    """Emits a Gather for each index along dim, because Split and Squeeze would need one node more."""
    if len(op.out) == 1:
        return [op.squeeze(self, dim)]
    return [op.Gather(self, op.constant(index), axis=dim) for index in range(len(op.out))]


# ---------------------------------------------------------------- repetitions


@translates(aten.repeat.default)
def aten_repeat(op: Emitter, self: Value, repeats: Sequence[Size]) -> Value:
    """Emits Tile: self is repeated repeats[i] times along axis i, after new leading axes are added."""
    return _tile(op, self, repeats)


@translates(aten.tile.default)
def aten_tile(op: Emitter, self: Value, dims: Sequence[Size]) -> Value:
    """Emits Tile; dims and axes are aligned at the last one."""
    return _tile(op, self, [1] * (op.rank(self) - len(dims)) + list(dims))


def _tile(op: Emitter, self: Value, repeats: Sequence[Size]) -> Value:
    value = op.unsqueeze(self, *range(len(repeats) - op.rank(self)))
    if all(symbolic_sizes.same_size(n, 1) for n in repeats):
        return value
    return op.Tile(value, op.shape(repeats))


@translates(aten.repeat_interleave.Tensor)
def aten_repeat_interleave(op: Emitter, repeats: Value, *, output_size: Size | None = None) -> Value:
    """Emits the numbers 0, 1, ..., each number i as often as repeats[i] says.

    Item i ends at the sum of the repeats up to it. The item at an output position is the number of ends at or before
    that position: ones are added at the ends (several items may end at one position), then summed up.
    """
    ends = op.CumSum(op.cast(repeats, DataType.INT64), op.constant(0))
    total = op.Slice(op.Concat([0], ends, axis=0), [-1], [INT_MAX], [0])
    marks = op.Expand(op.constant([0]), op.Add(total, [1]))
    marks = op.ScatterElements(marks, ends, op.Expand(op.constant([1]), op.Shape(ends)), axis=0, reduction="add")
    return op.cast(op.Slice(op.CumSum(marks, op.constant(0)), [0], [-1], [0]), op.out_dtype)


@translates(aten.flip.default)
def aten_flip(op: Emitter, self: Value, dims: Sequence[int]) -> Value:
    """Emits one Slice with steps of -1."""
    axes = sorted({dim % op.rank(self) for dim in dims}) if op.rank(self) else []
    if not axes:
        return self
    count = len(axes)
    return op.Slice(self, [-1] * count, [INT_MIN] * count, axes, [-1] * count)


@translates(aten.roll.default)
def aten_roll(op: Emitter, self: Value, shifts: Sequence[Size], dims: Sequence[int] = ()) -> Value:
    """Emits two Slices and a Concat for each axis; without dims, for the flattened tensor."""
    sizes = op.sizes(self)
    if not sizes:
        return self
    if not dims:
        count = symbolic_sizes.static(op.out[0].numel())
        flat = op.with_sizes(_roll(op, op.reshape(self, [count]), shifts[0], 0, count), (count,))
        return op.reshape(flat, sizes)
    for shift, dim in zip(shifts, dims, strict=True):
        self = _roll(op, self, shift, dim, sizes[dim])
    return self


def _roll(op: Emitter, self: Value, shift: Size, dim: int, size: Size) -> Value:
    """Emits the two slices in exchanged order; a shift that may exceed the size is reduced modulo the size."""
    if symbolic_sizes.same_size(size, 0):
        return self
    if isinstance(shift, int) and isinstance(size, int):
        split: Size = -shift % size
    elif isinstance(shift, int) and statically_known_true(size >= abs(shift)):
        split = -shift
    else:
        split = -shift % torch.sym_max(size, 1)  # the remainder by 0 is an error
    if isinstance(split, int) and split == 0:
        return self
    head, tail = slice_axis(op, self, dim, 0, split), slice_axis(op, self, dim, split, INT_MAX)
    result: Value = op.Concat(tail, head, axis=dim)
    return result


# ---------------------------------------------------------------- windows, diagonals, triangles


@translates(aten.unfold.default, aten.unfold_copy.default)
def aten_unfold(op: Emitter, self: Value, dimension: int, size: int, step: int) -> Value:
    """Emits Gather with the indices of all windows, then moves the window's axis to the end."""
    if not op.rank(self):
        return op.reshape(self, op.out_sizes)
    rank = op.rank(self)
    axis = dimension % rank
    count = op.out_sizes[axis]
    if isinstance(count, int) and count * size <= MAX_CONSTANT_ELEMENTS:
        indices = op.constant(np.arange(count)[:, None] * step + np.arange(size), DataType.INT64)
    else:
        starts = linear_range(op, count, 0, step)
        indices = op.Add(op.unsqueeze(starts, 1), op.constant([list(range(size))], DataType.INT64))
    windows = op.Gather(self, indices, axis=axis)
    perm = [i for i in range(rank + 1) if i != axis + 1] + [axis + 1]
    return op.transpose(windows, perm)


@translates(aten.diagonal.default, aten.diagonal_copy.default)
def aten_diagonal(op: Emitter, self: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """Emits a Slice: after the two axes are flattened into one, every (columns + 1)th element is on the diagonal."""
    sizes = op.sizes(self)
    dim1, dim2 = dim1 % len(sizes), dim2 % len(sizes)
    rest = [axis for axis in range(len(sizes)) if axis not in (dim1, dim2)]
    rows, columns, count = sizes[dim1], sizes[dim2], op.out_sizes[-1]
    flat = op.reshape(op.transpose(self, [*rest, dim1, dim2]), [*(sizes[axis] for axis in rest), rows * columns])
    start = offset if offset >= 0 else -offset * columns
    return slice_axis(op, flat, len(rest), start, start + count * (columns + 1), columns + 1)


@translates(aten.linalg_diagonal.default)
def aten_linalg_diagonal(op: Emitter, A: Value, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    """Emits the diagonal of the last two axes by default."""
    return aten_diagonal(op, A, offset, dim1, dim2)


@translates(aten.tril.default)
def aten_tril(op: Emitter, self: Value, diagonal: Size = 0) -> Value:
    """Emits Trilu of the lower triangle."""
    return op.Trilu(self, _diagonal(diagonal), upper=0)


@translates(aten.triu.default)
def aten_triu(op: Emitter, self: Value, diagonal: Size = 0) -> Value:
    """Emits Trilu of the upper triangle."""
    return op.Trilu(self, _diagonal(diagonal), upper=1)


def _diagonal(diagonal: Size) -> Size | None:
    """Returns None for the main diagonal, which is the default of Trilu."""
    return None if isinstance(diagonal, int) and diagonal == 0 else diagonal


def _is_row_major(self: torch.Tensor) -> bool:
    """Returns whether self is contiguous and begins its storage, so that strides count the elements of self."""
    offset = symbolic_sizes.static(self.storage_offset())
    return isinstance(offset, int) and offset == 0 and self.is_contiguous()


@translates(aten.as_strided.default, aten.as_strided_copy.default, supports=_is_row_major)
def aten_as_strided(
    op: Emitter, self: Value, size: Sequence[Size], stride: Sequence[Size], storage_offset: Size | None = None
) -> Value:
    """Emits Gather: flat[storage_offset + Σ i_k * stride_k] for every index i within size."""
    flat = op.reshape(self, [-1]) if op.rank(self) != 1 else self
    total: Value = op.constant(0, DataType.INT64) if storage_offset is None else op.cast(storage_offset, DataType.INT64)
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        places = linear_range(op, symbolic_sizes.static(count), 0, symbolic_sizes.static(step))
        later = range(1, len(size) - axis)
        total = op.Add(total, op.unsqueeze(places, *later))
    return op.Gather(flat, total, axis=0)
