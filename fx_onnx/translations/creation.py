"""Tensors filled with one number; small ones are constants of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from onnx_ir import Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter, Scalar
from fx_onnx.translations._known_tensors import filled
from fx_onnx.translations._movement import broadcast


@translates(aten.full.default)
def aten_full(
    op: Emitter, size: Sequence[Size], fill_value: Scalar, *, dtype: torch.dtype | None = None, layout: Any = None,
    device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """Emits a tensor of ``fill_value``."""
    return filled(op, op.out_sizes, fill_value, op.out_dtype)


@translates(aten.zeros.default)
def aten_zeros(
    op: Emitter, size: Sequence[Size], *, dtype: torch.dtype | None = None, layout: Any = None, device: Any = None,
    pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """Emits a tensor of zeros."""
    return filled(op, op.out_sizes, 0, op.out_dtype)


@translates(aten.ones.default)
def aten_ones(
    op: Emitter, size: Sequence[Size], *, dtype: torch.dtype | None = None, layout: Any = None, device: Any = None,
    pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """Emits a tensor of ones."""
    return filled(op, op.out_sizes, 1, op.out_dtype)


@translates(aten.empty.memory_format)
def aten_empty(
    op: Emitter, size: Sequence[Size], *, dtype: torch.dtype | None = None, layout: Any = None, device: Any = None,
    pin_memory: bool | None = None, memory_format: Any = None,
) -> Value:  # fmt: skip
    """Emits zeros, because the content of an empty tensor is arbitrary."""
    return filled(op, op.out_sizes, 0, op.out_dtype)


@translates(aten.empty_strided.default)
def aten_empty_strided(
    op: Emitter, size: Sequence[Size], stride: Sequence[Size], *, dtype: torch.dtype | None = None, layout: Any = None,
    device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """Emits zeros, because the content of an empty tensor is arbitrary."""
    return filled(op, op.out_sizes, 0, op.out_dtype)


@translates(aten.empty_permuted.default)
def aten_empty_permuted(
    op: Emitter, size: Sequence[Size], physical_layout: Sequence[int], *, dtype: torch.dtype | None = None,
    layout: Any = None, device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """Emits zeros, because the content of an empty tensor is arbitrary."""
    return filled(op, op.out_sizes, 0, op.out_dtype)


@translates(aten.new_full.default)
def aten_new_full(
    op: Emitter, self: Value, size: Sequence[Size], fill_value: Scalar, *, dtype: torch.dtype | None = None,
    layout: Any = None, device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """Emits a tensor of ``fill_value``, in the dtype of self unless ``dtype`` is given."""
    return filled(op, op.out_sizes, fill_value, op.out_dtype)


@translates(aten.new_zeros.default, aten.new_empty.default)
def aten_new_zeros(
    op: Emitter, self: Value, size: Sequence[Size], *, dtype: torch.dtype | None = None, layout: Any = None,
    device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """Emits zeros, in the dtype of self unless ``dtype`` is given."""
    return filled(op, op.out_sizes, 0, op.out_dtype)


@translates(aten.new_ones.default)
def aten_new_ones(
    op: Emitter, self: Value, size: Sequence[Size], *, dtype: torch.dtype | None = None, layout: Any = None,
    device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """Emits ones, in the dtype of self unless ``dtype`` is given."""
    return filled(op, op.out_sizes, 1, op.out_dtype)


@translates(aten.new_empty_strided.default)
def aten_new_empty_strided(
    op: Emitter, self: Value, size: Sequence[Size], stride: Sequence[Size], *, dtype: torch.dtype | None = None,
    layout: Any = None, device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """Emits zeros, because the content of an empty tensor is arbitrary."""
    return filled(op, op.out_sizes, 0, op.out_dtype)


@translates(aten.full_like.default)
def aten_full_like(
    op: Emitter, self: Value, fill_value: Scalar, *, dtype: torch.dtype | None = None, layout: Any = None,
    device: Any = None, pin_memory: bool | None = None, memory_format: Any = None,
) -> Value:  # fmt: skip
    """Emits a tensor of ``fill_value`` in the sizes of self."""
    return filled(op, op.out_sizes, fill_value, op.out_dtype, self)


@translates(aten.zeros_like.default, aten.empty_like.default)
def aten_zeros_like(
    op: Emitter, self: Value, *, dtype: torch.dtype | None = None, layout: Any = None, device: Any = None,
    pin_memory: bool | None = None, memory_format: Any = None,
) -> Value:  # fmt: skip
    """Emits zeros in the sizes of self."""
    return filled(op, op.out_sizes, 0, op.out_dtype, self)


@translates(aten.ones_like.default)
def aten_ones_like(
    op: Emitter, self: Value, *, dtype: torch.dtype | None = None, layout: Any = None, device: Any = None,
    pin_memory: bool | None = None, memory_format: Any = None,
) -> Value:  # fmt: skip
    """Emits ones in the sizes of self."""
    return filled(op, op.out_sizes, 1, op.out_dtype, self)


@translates(aten.scalar_tensor.default)
def aten_scalar_tensor(
    op: Emitter, s: Scalar, *, dtype: torch.dtype | None = None, layout: Any = None, device: Any = None,
    pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """Emits a number as a 0-d tensor."""
    return filled(op, (), s, op.out_dtype)


@translates(aten.fill.Scalar)
def aten_fill(op: Emitter, self: Value, value: Scalar) -> Value:
    """Emits a tensor of ``value`` in the sizes and dtype of self."""
    return filled(op, op.out_sizes, value, op.out_dtype, self)


@translates(aten.fill.Tensor)
def aten_fill_tensor(op: Emitter, self: Value, value: Value) -> Value:
    """Emits Expand of a 0-d tensor to the sizes and dtype of self."""
    return broadcast(op, op.cast(value, op.out_dtype), op.out_sizes, self)


@translates(aten.zero.default)
def aten_zero(op: Emitter, self: Value) -> Value:
    """Emits zeros in the sizes and dtype of self."""
    return filled(op, op.out_sizes, 0, op.out_dtype, self)


@translates(aten.copy.default)
def aten_copy(op: Emitter, self: Value, src: Value, non_blocking: bool = False) -> Value:
    """Emits Cast and Expand of src to the dtype and sizes of self."""
    return broadcast(op, op.cast(src, op.out_dtype), op.out_sizes, self)
