"""Shapes, axis order, broadcasting, copies and dtype conversions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.onnx_model.dtypes import is_packed
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translations._movement import broadcast

# ---------------------------------------------------------------- new sizes, same order


@translates(aten.view.default, aten._unsafe_view.default, aten.view_copy.default, aten._reshape_copy.default)
def aten_view(op: Emitter, self: Value, size: Sequence[Size]) -> Value:
    """Emits Reshape to the sizes of the result."""
    return op.reshape(self, op.out_sizes, size)


@translates(aten._reshape_alias.default)
def aten_reshape_alias(op: Emitter, self: Value, size: Sequence[Size], stride: Sequence[Size]) -> Value:
    """Emits Reshape to the sizes of the result; ONNX tensors have no strides."""
    return op.reshape(self, op.out_sizes)


@translates(aten.reshape.default)
def aten_reshape(op: Emitter, self: Value, shape: Sequence[Size]) -> Value:
    """Emits Reshape to the sizes of the result."""
    return op.reshape(self, op.out_sizes, shape)


@translates(aten.view_as.default, aten.reshape_as.default)
def aten_view_as(op: Emitter, self: Value, other: Value) -> Value:
    """Emits Reshape to the sizes of other."""
    return op.reshape(self, op.out_sizes)


@translates(aten.flatten.using_ints)
def aten_flatten(op: Emitter, self: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    """Emits Reshape that merges the axes start_dim to end_dim."""
    return op.reshape(self, op.out_sizes)


@translates(aten.unflatten.int)
def aten_unflatten(op: Emitter, self: Value, dim: int, sizes: Sequence[Size]) -> Value:
    """Emits Reshape that splits one axis."""
    return op.reshape(self, op.out_sizes)


@translates(aten.ravel.default, aten.atleast_1d.default, aten.atleast_2d.default, aten.atleast_3d.default)
def aten_ravel(op: Emitter, self: Value) -> Value:
    """Emits Reshape to the sizes that torch infers from those of self."""
    return op.reshape(self, op.out_sizes)


@translates(aten.unsqueeze.default, aten.unsqueeze_copy.default)
def aten_unsqueeze(op: Emitter, self: Value, dim: int) -> Value:
    """Emits Unsqueeze; dim counts axes of the result."""
    return op.unsqueeze(self, dim % (op.rank(self) + 1))


@translates(aten.squeeze.default, aten.squeeze_copy.default)
def aten_squeeze(op: Emitter, self: Value) -> Value:
    """Emits Squeeze of the axes whose size is known to be 1."""
    return _squeeze(op, self, range(op.rank(self)))


@translates(aten.squeeze.dim, aten.squeeze_copy.dim)
def aten_squeeze_dim(op: Emitter, self: Value, dim: int) -> Value:
    """Emits Squeeze of the axis if its size is 1."""
    return _squeeze(op, self, [dim])


@translates(aten.squeeze.dims, aten.squeeze_copy.dims)
def aten_squeeze_dims(op: Emitter, self: Value, dim: Sequence[int]) -> Value:
    """Emits Squeeze of the axes in ``dim`` whose size is 1."""
    return _squeeze(op, self, dim)


def _squeeze(op: Emitter, self: Value, dims: Sequence[int]) -> Value:
    sizes = op.sizes(self)
    axes = sorted({dim % len(sizes) for dim in dims}) if sizes else []
    return op.squeeze(self, *(axis for axis in axes if symbolic_sizes.same_size(sizes[axis], 1)))


# ---------------------------------------------------------------- another order of the axes


@translates(aten.permute.default, aten.permute_copy.default)
def aten_permute(op: Emitter, self: Value, dims: Sequence[int]) -> Value:
    """Emits Transpose: axis dims[i] becomes axis i."""
    return op.transpose(self, dims)


@translates(aten.transpose.int, aten.transpose_copy.int, aten.swapdims.default)
def aten_transpose(op: Emitter, self: Value, dim0: int, dim1: int) -> Value:
    """Emits Transpose of two axes."""
    return _swap(op, self, dim0, dim1)


@translates(aten.swapaxes.default)
def aten_swapaxes(op: Emitter, self: Value, axis0: int, axis1: int) -> Value:
    """Emits Transpose of two axes."""
    return _swap(op, self, axis0, axis1)


@translates(aten.t.default, aten.t_copy.default)
def aten_t(op: Emitter, self: Value) -> Value:
    """Emits Transpose of a matrix; a 1-d or 0-d tensor stays unchanged."""
    return _swap(op, self, 0, -1)


@translates(aten.mT.default, aten.mH.default, aten.adjoint.default, aten.matrix_H.default)
def aten_mt(op: Emitter, self: Value) -> Value:
    """Emits Transpose of the last two axes; conjugation has no effect on real numbers."""
    return _swap(op, self, -2, -1)


@translates(aten.numpy_T.default)
def aten_numpy_t(op: Emitter, self: Value) -> Value:
    """Emits Transpose that reverses the axes."""
    return op.transpose(self, range(op.rank(self))[::-1])


@translates(aten.movedim.int, aten.moveaxis.int)
def aten_movedim(op: Emitter, self: Value, source: int, destination: int) -> Value:
    """Emits Transpose that moves one axis; the others keep their order."""
    return _move(op, self, [source], [destination])


@translates(aten.movedim.intlist, aten.moveaxis.intlist)
def aten_movedim_intlist(op: Emitter, self: Value, source: Sequence[int], destination: Sequence[int]) -> Value:
    """Emits Transpose that moves some axes; the others keep their order."""
    return _move(op, self, source, destination)


def _swap(op: Emitter, self: Value, dim0: int, dim1: int) -> Value:
    perm = list(range(op.rank(self)))
    if perm:
        perm[dim0], perm[dim1] = perm[dim1], perm[dim0]
    return op.transpose(self, perm)


def _move(op: Emitter, self: Value, source: Sequence[int], destination: Sequence[int]) -> Value:
    rank = op.rank(self)
    if not rank:
        return self
    moved = {d % rank: s % rank for s, d in zip(source, destination, strict=True)}
    rest = iter(axis for axis in range(rank) if axis not in moved.values())
    return op.transpose(self, [moved[i] if i in moved else next(rest) for i in range(rank)])


# ---------------------------------------------------------------- broadcasts


@translates(aten.expand.default, aten.expand_copy.default, aten.broadcast_to.default)
def aten_expand(op: Emitter, self: Value, size: Sequence[Size], *, implicit: bool = False) -> Value:
    """Emits Expand to the sizes of the result; where a computed size is -1, the axis keeps its own size."""
    own = {symbolic_sizes.size_of(n) for n in op.sizes(self)}
    if all(symbolic_sizes.size_of(n) in own or symbolic_sizes.expression(n).is_negative is not None for n in size):
        return broadcast(op, self, op.out_sizes)
    shape = op.shape(op.out_sizes)
    result: Value = op.Expand(self, op.Where(op.Equal(shape, [-1]), [1], shape))
    return result


@translates(aten.expand_as.default)
def aten_expand_as(op: Emitter, self: Value, other: Value) -> Value:
    """Emits Expand to the sizes of other."""
    return broadcast(op, self, op.out_sizes)


# ---------------------------------------------------------------- copies and aliases


@translates(
    aten.alias.default, aten.alias_copy.default, aten.detach.default, aten.detach_copy.default, aten.lift.default,
    aten.lift_fresh.default, aten.lift_fresh_copy.default, aten.positive.default, aten.resolve_conj.default,
    aten.resolve_neg.default, aten._conj.default, aten._conj_physical.default, aten.conj.default,
)  # fmt: skip
def aten_alias(op: Emitter, self: Value) -> Value:
    """Returns self; conjugation has no effect on real numbers."""
    return self


@translates(aten.contiguous.default)
def aten_contiguous(op: Emitter, self: Value, *, memory_format: Any = torch.contiguous_format) -> Value:
    """Returns self; ONNX tensors have no strides."""
    return self


@translates(aten.clone.default)
def aten_clone(op: Emitter, self: Value, *, memory_format: Any = None) -> Value:
    """Returns self; no node writes to an ONNX tensor, so a copy is not necessary."""
    return self


# ---------------------------------------------------------------- dtypes


@translates(aten.to.dtype)
def aten_to_dtype(
    op: Emitter,
    self: Value,
    dtype: torch.dtype,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Value:
    """Emits Cast, or nothing if self has the dtype already."""
    return op.cast(self, dtype)


@translates(aten.to.device)
def aten_to_device(
    op: Emitter,
    self: Value,
    device: Any,
    dtype: torch.dtype,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Value:
    """Emits Cast to dtype; the runtime chooses devices."""
    return op.cast(self, dtype)


@translates(aten.to.dtype_layout)
def aten_to_dtype_layout(
    op: Emitter,
    self: Value,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Value:
    """Emits Cast to dtype; the runtime chooses layouts and devices."""
    return op.cast(self, op.out_dtype)


@translates(aten._to_copy.default)
def aten_to_copy(
    op: Emitter,
    self: Value,
    *,
    dtype: torch.dtype | None = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: Any = None,
) -> Value:
    """Emits Cast to dtype; the runtime chooses layouts and devices."""
    return op.cast(self, op.out_dtype)


@translates(aten.to.other)
def aten_to_other(
    op: Emitter,
    self: Value,
    other: Value,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Value:
    """Emits Cast to the dtype of other."""
    return op.cast(self, op.out_dtype)


@translates(aten.type_as.default)
def aten_type_as(op: Emitter, self: Value, other: Value) -> Value:
    """Emits Cast to the dtype of other."""
    return op.cast(self, op.out_dtype)


def _is_cast(self: torch.Tensor, dtype: torch.dtype) -> bool:
    """Returns whether Cast keeps the bits: for booleans and integers of equal width, or for the same dtype."""
    old, new = (torch.uint8 if is_packed(given) else given for given in (self.dtype, dtype))
    exact = not any(x.is_floating_point or x.is_complex for x in (old, new))
    return old == new or (exact and old.itemsize == new.itemsize)


@translates(aten.view.dtype, aten.view_copy.dtype, supports=_is_cast)
def aten_view_dtype(op: Emitter, self: Value, dtype: torch.dtype) -> Value:
    """Emits Cast, which reinterprets the bits of integers of equal width. A byte other than 0 is True as a boolean."""
    return op.cast(self, op.out_dtype)


_INTEGERS = {getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}
_BIT_CAST = {torch.float16, torch.bfloat16, torch.float32, torch.float64, *_INTEGERS}


def _is_bit_cast(self: torch.Tensor, dtype: torch.dtype) -> bool:
    """Returns whether BitCast or Cast keeps the bits. ONNX Runtime has no BitCast of booleans and 8-bit floats."""
    same_width = self.itemsize == dtype.itemsize and {self.dtype, dtype} <= _BIT_CAST
    return same_width or _is_cast(self, dtype)


@translates(aten.view.dtype, aten.view_copy.dtype, since=26, supports=_is_bit_cast)
def aten_view_dtype_as_bit_cast(op: Emitter, self: Value, dtype: torch.dtype) -> Value:
    """Emits Cast between integers of equal width, and BitCast between other dtypes of equal width."""
    if op.out_dtype == self.dtype or DataType.BOOL in (op.out_dtype, self.dtype):
        return aten_view_dtype(op, self, dtype)
    return op.BitCast(self, to=op.out_dtype)
