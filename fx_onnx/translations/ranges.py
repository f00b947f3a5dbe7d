"""Ranges and index patterns: arange, linspace, logspace, eye, triangular indices."""

from __future__ import annotations

from typing import Any

import torch
from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.onnx_model import dtypes
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter, Scalar
from fx_onnx.translations._known_tensors import filled, torch_constant
from fx_onnx.translations._movement import MAX_CONSTANT_ELEMENTS, linear_range


@translates(aten.arange.default)
def aten_arange(
    op: Emitter, end: Scalar, *, dtype: torch.dtype | None = None, layout: Any = None, device: Any = None,
    pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """Emits the numbers 0, 1, ... below end."""
    return _arange(op, 0, end, 1)


@translates(aten.arange.start)
def aten_arange_start(
    op: Emitter, start: Scalar, end: Scalar, *, dtype: torch.dtype | None = None, layout: Any = None,
    device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """Emits the numbers start, start + 1, ... below end."""
    return _arange(op, start, end, 1)


@translates(aten.arange.start_step)
def aten_arange_start_step(
    op: Emitter, start: Scalar, end: Scalar, step: Scalar = 1, *, dtype: torch.dtype | None = None,
    layout: Any = None, device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """Emits the numbers start, start + step, ... before end."""
    return _arange(op, start, end, step)


@translates(aten.range.step)
def aten_range_step(
    op: Emitter, start: Scalar, end: Scalar, step: Scalar = 1, *, dtype: torch.dtype | None = None,
    layout: Any = None, device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """Emits the numbers start, start + step, ... up to and including end."""
    return _steps(op, start, step)


def _arange(op: Emitter, start: Scalar, end: Scalar, step: Scalar) -> Value:
    """Emits a constant if the range is small, a Range if all numbers are integers, else start + i * step."""
    start, end, step = map(symbolic_sizes.static, (start, end, step))
    (count,) = op.out_sizes
    if isinstance(count, int) and count <= MAX_CONSTANT_ELEMENTS and not _is_any_symbolic(start, end, step):
        return torch_constant(op, torch.arange(start, end, step, dtype=op.out[0].dtype))  # type: ignore[arg-type]
    if all(isinstance(n, (int, torch.SymInt)) for n in (start, end, step)):
        limits = (op.cast(n, DataType.INT64) for n in (start, end, step))
        return op.cast(op.Range(*limits), op.out_dtype)
    return _steps(op, start, step)


def _is_any_symbolic(*numbers: Any) -> bool:
    return any(isinstance(number, symbolic_sizes.SymbolicNumber) for number in numbers)


def _steps(op: Emitter, start: Scalar, step: Scalar) -> Value:
    """Emits start + i * step for each index i of the result, computed in float64 as in torch (int64 for integers)."""
    if dtypes.is_integer(op.out_dtype):
        start, step = (int(n) if isinstance(n, float) else n for n in (start, step))
    kind = DataType.INT64 if dtypes.is_integer(op.out_dtype) else DataType.DOUBLE
    places = op.cast(linear_range(op, op.out_sizes[0]), kind)
    scaled = op.Mul(places, op.cast(step, kind))
    return op.cast(op.Add(scaled, op.cast(start, kind)), op.out_dtype)


@translates(aten.linspace.default)
def aten_linspace(
    op: Emitter, start: Scalar, end: Scalar, steps: int, *, dtype: torch.dtype | None = None, layout: Any = None,
    device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """Emits a constant, because torch requires a static number of steps."""
    return torch_constant(op, torch.linspace(start, end, steps, dtype=op.out[0].dtype))  # type: ignore[arg-type]


@translates(aten.logspace.default)
def aten_logspace(
    op: Emitter, start: Scalar, end: Scalar, steps: int, base: float = 10.0, *, dtype: torch.dtype | None = None,
    layout: Any = None, device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """Emits a constant, because torch requires a static number of steps."""
    return torch_constant(op, torch.logspace(start, end, steps, base, dtype=op.out[0].dtype))  # type: ignore[arg-type]


@translates(aten.eye.default)
def aten_eye(
    op: Emitter, n: Size, *, dtype: torch.dtype | None = None, layout: Any = None, device: Any = None,
    pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """Emits a constant, or EyeLike if the matrix is large or dynamic."""
    return _eye(op)


@translates(aten.eye.m)
def aten_eye_m(
    op: Emitter, n: Size, m: Size, *, dtype: torch.dtype | None = None, layout: Any = None, device: Any = None,
    pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """Emits a constant, or EyeLike if the matrix is large or dynamic."""
    return _eye(op)


def _eye(op: Emitter) -> Value:
    rows, columns = op.out_sizes
    if isinstance(rows, int) and isinstance(columns, int) and rows * columns <= MAX_CONSTANT_ELEMENTS:
        return torch_constant(op, torch.eye(rows, columns))
    return op.EyeLike(filled(op, (rows, columns), 0, op.out_dtype), dtype=op.out_dtype)


@translates(aten.tril_indices.default)
def aten_tril_indices(
    op: Emitter, row: int, col: int, offset: int = 0, *, dtype: torch.dtype | None = torch.int64, layout: Any = None,
    device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """Emits the rows and columns of the elements on and below a diagonal."""
    return _triangle(op, torch.tril_indices, row, col, offset)


@translates(aten.triu_indices.default)
def aten_triu_indices(
    op: Emitter, row: int, col: int, offset: int = 0, *, dtype: torch.dtype | None = torch.int64, layout: Any = None,
    device: Any = None, pin_memory: bool | None = None,
) -> Value:  # fmt: skip
    """Emits the rows and columns of the elements on and above a diagonal."""
    return _triangle(op, torch.triu_indices, row, col, offset)


def _triangle(op: Emitter, indices: Any, row: int, col: int, offset: int) -> Value:
    """Emits a constant if the matrix is small, else NonZero of a triangle of ones."""
    if row * col <= MAX_CONSTANT_ELEMENTS:
        return torch_constant(op, indices(row, col, offset))
    ones = filled(op, (row, col), 1, DataType.FLOAT)
    places = op.NonZero(op.Trilu(ones, offset, upper=int(indices is torch.triu_indices)))
    return op.cast(places, op.out_dtype)
