"""ATen creation of tensors → ONNX: small ones of known content are constants of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir import DataType, Value

from fx_onnx import dtypes, symbols
from fx_onnx.emitter import Emitter, Scalar
from fx_onnx.ops._movement import SMALL, broadcast, wrapped
from fx_onnx.symbols import Size
from fx_onnx.table import translates

aten = torch.ops.aten


def filled(op: Emitter, sizes: Sequence[Size], number: Scalar, dtype: DataType, like: Value | None = None) -> Value:
    """One number everywhere: a constant where it is small, else ConstantOfShape; ``like`` has these sizes."""
    number = symbols.static(number)
    count = int(np.prod([float(size) for size in sizes])) if all(isinstance(size, int) for size in sizes) else None
    if isinstance(number, symbols.SymbolicNumber):
        return op.Expand(op.scalar(number, dtype), _shape(op, sizes, like)) if sizes else op.scalar(number, dtype)
    if dtype == DataType.BOOL or dtypes.is_integer(dtype):
        number = bool(number) if dtype == DataType.BOOL else wrapped(int(number), dtype)
    if count is not None and count <= SMALL:
        return op.constant(np.full(tuple(sizes), number, dtype=dtype.numpy()), dtype)
    content = ir.Tensor(np.full((1,), number, dtype=dtype.numpy()), dtype=dtype)
    return op.ConstantOfShape(_shape(op, sizes, like), value=content)


def _shape(op: Emitter, sizes: Sequence[Size], like: Value | None) -> Value:
    """The sizes as a value: one Shape node of ``like`` where several of them are symbolic."""
    if like is not None and sum(not isinstance(size, int) for size in sizes) > 1:
        return op.Shape(like)
    return op.shape(sizes)


def computed(op: Emitter, tensor: torch.Tensor) -> Value:
    """What torch computed, as a constant in the dtype of the result."""
    dtype = op.out_dtype
    plain = tensor if tensor.dtype in _NUMPY else tensor.double()
    return op.constant(plain.numpy().astype(dtype.numpy()), dtype)


_NUMPY = frozenset({torch.float64, torch.float32, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8,
                    torch.uint8, torch.bool})  # fmt: skip


# ---------------------------------------------------------------- one number everywhere


@translates(aten.full.default)
def aten_full(
    op: Emitter, size: Sequence[Size], fill_value: Scalar, *, dtype: torch.dtype | None = None, layout: Any = None,
    device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """A tensor of one number."""
    return filled(op, op.out_sizes, fill_value, op.out_dtype)


@translates(aten.zeros.default)
def aten_zeros(
    op: Emitter, size: Sequence[Size], *, dtype: torch.dtype | None = None, layout: Any = None, device: Any = None,
    pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """A tensor of zeros."""
    return filled(op, op.out_sizes, 0, op.out_dtype)


@translates(aten.ones.default)
def aten_ones(
    op: Emitter, size: Sequence[Size], *, dtype: torch.dtype | None = None, layout: Any = None, device: Any = None,
    pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """A tensor of ones."""
    return filled(op, op.out_sizes, 1, op.out_dtype)


@translates(aten.empty.memory_format)
def aten_empty(
    op: Emitter, size: Sequence[Size], *, dtype: torch.dtype | None = None, layout: Any = None, device: Any = None,
    pin_memory: bool | None = None, memory_format: Any = None,
) -> Value:  # fmt: skip
    """A tensor whose content does not matter: zeros."""
    return filled(op, op.out_sizes, 0, op.out_dtype)


@translates(aten.empty_strided.default)
def aten_empty_strided(
    op: Emitter, size: Sequence[Size], stride: Sequence[Size], *, dtype: torch.dtype | None = None, layout: Any = None,
    device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """A tensor whose content does not matter: zeros."""
    return filled(op, op.out_sizes, 0, op.out_dtype)


@translates(aten.empty_permuted.default)
def aten_empty_permuted(
    op: Emitter, size: Sequence[Size], physical_layout: Sequence[int], *, dtype: torch.dtype | None = None,
    layout: Any = None, device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """A tensor whose content does not matter: zeros."""
    return filled(op, op.out_sizes, 0, op.out_dtype)


@translates(aten.new_full.default)
def aten_new_full(
    op: Emitter, self: Value, size: Sequence[Size], fill_value: Scalar, *, dtype: torch.dtype | None = None,
    layout: Any = None, device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """A tensor of one number, in the dtype of self unless told otherwise."""
    return filled(op, op.out_sizes, fill_value, op.out_dtype)


@translates(aten.new_zeros.default, aten.new_empty.default)
def aten_new_zeros(
    op: Emitter, self: Value, size: Sequence[Size], *, dtype: torch.dtype | None = None, layout: Any = None,
    device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """A tensor of zeros, in the dtype of self unless told otherwise."""
    return filled(op, op.out_sizes, 0, op.out_dtype)


@translates(aten.new_ones.default)
def aten_new_ones(
    op: Emitter, self: Value, size: Sequence[Size], *, dtype: torch.dtype | None = None, layout: Any = None,
    device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """A tensor of ones, in the dtype of self unless told otherwise."""
    return filled(op, op.out_sizes, 1, op.out_dtype)


@translates(aten.new_empty_strided.default)
def aten_new_empty_strided(
    op: Emitter, self: Value, size: Sequence[Size], stride: Sequence[Size], *, dtype: torch.dtype | None = None,
    layout: Any = None, device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """A tensor whose content does not matter: zeros."""
    return filled(op, op.out_sizes, 0, op.out_dtype)


@translates(aten.full_like.default)
def aten_full_like(
    op: Emitter, self: Value, fill_value: Scalar, *, dtype: torch.dtype | None = None, layout: Any = None,
    device: Any = None, pin_memory: bool | None = None, memory_format: Any = None,
) -> Value:  # fmt: skip
    """A tensor of one number in the sizes of self."""
    return filled(op, op.out_sizes, fill_value, op.out_dtype, self)


@translates(aten.zeros_like.default, aten.empty_like.default)
def aten_zeros_like(
    op: Emitter, self: Value, *, dtype: torch.dtype | None = None, layout: Any = None, device: Any = None,
    pin_memory: bool | None = None, memory_format: Any = None,
) -> Value:  # fmt: skip
    """Zeros in the sizes of self."""
    return filled(op, op.out_sizes, 0, op.out_dtype, self)


@translates(aten.ones_like.default)
def aten_ones_like(
    op: Emitter, self: Value, *, dtype: torch.dtype | None = None, layout: Any = None, device: Any = None,
    pin_memory: bool | None = None, memory_format: Any = None,
) -> Value:  # fmt: skip
    """Ones in the sizes of self."""
    return filled(op, op.out_sizes, 1, op.out_dtype, self)


@translates(aten.scalar_tensor.default)
def aten_scalar_tensor(
    op: Emitter, s: Scalar, *, dtype: torch.dtype | None = None, layout: Any = None, device: Any = None,
    pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """A number as a 0-d tensor."""
    return filled(op, (), s, op.out_dtype)


@translates(aten.fill.Scalar)
def aten_fill(op: Emitter, self: Value, value: Scalar) -> Value:
    """One number in the sizes and the dtype of self."""
    return filled(op, op.out_sizes, value, op.out_dtype, self)


@translates(aten.fill.Tensor)
def aten_fill_tensor(op: Emitter, self: Value, value: Value) -> Value:
    """A 0-d tensor in the sizes and the dtype of self."""
    return broadcast(op, op.cast(value, op.out_dtype), op.out_sizes)


@translates(aten.zero.default)
def aten_zero(op: Emitter, self: Value) -> Value:
    """Zeros in the sizes and the dtype of self."""
    return filled(op, op.out_sizes, 0, op.out_dtype, self)


@translates(aten.copy.default)
def aten_copy(op: Emitter, self: Value, src: Value, non_blocking: bool = False) -> Value:
    """src in the sizes and the dtype of self."""
    return broadcast(op, op.cast(src, op.out_dtype), op.out_sizes)
