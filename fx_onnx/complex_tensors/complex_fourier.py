"""Decompositions of Fourier transforms into ``torch.ops.fx_onnx.dft``, a transform along one axis.

``dft`` takes and returns pairs of real numbers in a last axis. Its inverse divides by the length.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fx_onnx.complex_tensors.complex_numbers import as_complex, conjugate, real_part
from fx_onnx.decompositions._sizes import is_known
from fx_onnx.decompositions.registry import Complex, Operand, aten, complex_decomposes

# ATen's codes for the divisor: none, √n or n.
NO_DIVISOR, ROOT_OF_COUNT, COUNT = 0, 1, 2
MAX_MATRIX_LENGTH = 1024
"""Up to this length, the inverse real transform is a product with a matrix. A longer axis uses ``dft``."""


def _stack_parts(x: Operand) -> Tensor:
    """Returns both parts, or the only part of a real tensor, stacked along a new last axis."""
    return torch.stack((x.real, x.imag), -1) if isinstance(x, Complex) else real_part(x).unsqueeze(-1)


def _normalize(x: Tensor, count: int, normalization: int, inverse: bool) -> Tensor:
    """Returns the transform with ATen's normalization.

    The inverse ``dft`` has divided by ``count`` already; the forward one has not.
    """
    exponent = {NO_DIVISOR: 0.0, ROOT_OF_COUNT: -0.5, COUNT: -1.0}[normalization] + (1.0 if inverse else 0.0)
    if exponent == 0:
        return x
    return x * (count if exponent == 1 else count**exponent)


def _transform(x: Tensor, axes: list[int], inverse: bool) -> Tensor:
    """Returns the transform along several axes."""
    for axis in axes:
        x = torch.ops.fx_onnx.dft(x, axis, inverse)
    return x


def _axes(x: Tensor, dim: list[int]) -> list[int]:
    """Returns the axes without negative numbers; the last axis of ``x`` holds the parts."""
    return [axis % (x.dim() - 1) for axis in dim]


def _count(x: Tensor, axes: list[int]) -> int:
    """Returns the product of the sizes along the axes."""
    count = 1
    for axis in axes:
        count = count * x.size(axis)
    return count


@complex_decomposes(aten._fft_c2c)
def _fft_c2c(self: Operand, dim: list[int], normalization: int, forward: bool) -> Complex:
    """Returns the transform of complex (or real) numbers to complex ones."""
    x = _stack_parts(self)
    axes = _axes(x, dim)
    y = _normalize(_transform(x, axes, not forward), _count(x, axes), normalization, not forward)
    return Complex(y.select(-1, 0), y.select(-1, 1))


@complex_decomposes(aten._fft_r2c)
def _fft_r2c(self: Tensor, dim: list[int], normalization: int, onesided: bool) -> Complex:
    """Returns the transform of real numbers to complex ones.

    A one-sided transform computes half of the last axis, because the other half is its conjugate.
    """
    x = _stack_parts(self)
    axes = _axes(x, dim)
    y = torch.ops.fx_onnx.dft(x, axes[-1], False, onesided)
    y = _normalize(_transform(y, axes[:-1], False), _count(x, axes), normalization, False)
    return Complex(y.select(-1, 0), y.select(-1, 1))


@complex_decomposes(aten._fft_c2r)
def _fft_c2r(self: Operand, dim: list[int], normalization: int, last_dim_size: int) -> Tensor:
    """Returns the inverse of the one-sided transform: complex numbers to real ones."""
    x = _stack_parts(as_complex(self))
    axes = _axes(x, dim)
    count = _count(x, axes[:-1]) * last_dim_size
    x, last = _transform(x, axes[:-1], True), axes[-1]
    if isinstance(last_dim_size, int) and isinstance(x.size(last), int) and last_dim_size <= MAX_MATRIX_LENGTH:
        y = torch.ops.fx_onnx.irdft(x, last, last_dim_size)
    else:
        y = torch.ops.fx_onnx.dft(_whole_spectrum(x, last, last_dim_size), last, True).select(-1, 0)
    return _normalize(y, count, normalization, True)


def _whole_spectrum(half: Tensor, axis: int, length: int) -> Tensor:
    """Returns the whole spectrum of real numbers from its first half.

    The second half is the conjugate of the first, in reverse order and without the ends.
    """
    half = half.narrow(axis, 0, length // 2 + 1)
    count = (length - 1) // 2
    rest = half.index_select(axis, count - torch.arange(count, device=half.device))
    return torch.cat((half, torch.stack((rest.select(-1, 0), -rest.select(-1, 1)), -1)), axis)


# ---------------------------------------------------------------- the functions of torch.fft


def _normalization(norm: str | None, inverse: bool) -> int:
    """Returns ATen's code for the divisor of a transform.

    The mode "backward" (or None) divides the inverse by the count, and "forward" the forward transform.
    """
    if norm == "ortho":
        return ROOT_OF_COUNT
    return COUNT if (norm == "forward") != inverse else NO_DIVISOR


def _floating(x: Operand) -> Operand:
    """Returns the operand, with integers in torch's default dtype."""
    if isinstance(x, Tensor) and not x.is_floating_point():
        return x.to(torch.get_default_dtype())
    return x


def _resize(x: Tensor, sizes: Sequence[int | None], dim: Sequence[int]) -> Tensor:
    """Returns the tensor, cut or padded with zeros at the end of each axis; a size of None or -1 keeps the axis."""
    for size, axis in zip(sizes, dim, strict=True):
        if size is None or is_known(size, -1):
            continue
        old = x.size(axis)
        if isinstance(old, int) and isinstance(size, int):
            missing = size - old
            if missing < 0:
                x = x.narrow(axis, 0, size)
            elif missing > 0:
                x = torch.cat((x, x.new_zeros([*x.shape[:axis], missing, *x.shape[axis + 1 :]])), axis)
        else:
            x = torch.cat((x, x.new_zeros([*x.shape[:axis], size, *x.shape[axis + 1 :]])), axis).narrow(axis, 0, size)
    return x


def _resize_operand(x: Operand, sizes: Sequence[int | None], dim: Sequence[int]) -> Operand:
    """Returns ``_resize`` of a complex or real operand."""
    if isinstance(x, Complex):
        return Complex(_resize(x.real, sizes, dim), _resize(x.imag, sizes, dim))
    return _resize(real_part(x), sizes, dim)


def _sizes_and_axes(
    x: Operand, s: Sequence[int] | None, dim: Sequence[int] | None
) -> tuple[list[int | None], list[int]]:
    """Returns the sizes and axes of a transform; the default is all axes, or the last len(s) axes if ``s`` is given."""
    rank = real_part(x).dim()
    if dim is None:
        dim = range(rank) if s is None else range(rank - len(s), rank)
    axes = [axis % rank for axis in dim]
    return [None] * len(axes) if s is None else list(s), axes


def _to_complex(x: Operand, s: Any, dim: Any, norm: str | None, inverse: bool) -> Complex:
    """Returns the transform to complex numbers, or its inverse."""
    x = _floating(x)
    sizes, axes = _sizes_and_axes(x, s, dim)
    if not axes:
        return as_complex(x)
    return _fft_c2c(_resize_operand(x, sizes, axes), axes, _normalization(norm, inverse), not inverse)


def _to_half_spectrum(x: Operand, s: Any, dim: Any, norm: str | None, inverse: bool) -> Complex:
    """Returns the one-sided transform of real numbers, or the inverse one, which is its conjugate."""
    x = _floating(x)
    sizes, axes = _sizes_and_axes(x, s, dim)
    spectrum = _fft_r2c(_resize(real_part(x), sizes, axes), axes, _normalization(norm, inverse), True)
    return conjugate(spectrum) if inverse else spectrum


def _to_real(x: Operand, s: Any, dim: Any, norm: str | None, inverse: bool) -> Tensor:
    """Returns real numbers from half a spectrum; a forward transform conjugates the spectrum first."""
    x = _floating(x)
    sizes, axes = _sizes_and_axes(x, s, dim)
    last = sizes[-1]
    if last is None or is_known(last, -1):
        last = 2 * (real_part(x).size(axes[-1]) - 1)
    x = as_complex(_resize_operand(x, [*sizes[:-1], last // 2 + 1], axes))
    return _fft_c2r(x if inverse else conjugate(x), axes, _normalization(norm, inverse), last)


def _register(name: str, function: Callable[..., Any], inverse: bool) -> None:
    """Registers torch.fft's transform along one axis, two axes and n axes."""

    def one(self: Operand, n: int | None = None, dim: int = -1, norm: str | None = None) -> Any:
        return function(self, None if n is None else [n], [dim], norm, inverse)

    def two(self: Operand, s: Any = None, dim: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
        return function(self, s, dim, norm, inverse)

    def many(self: Operand, s: Any = None, dim: Any = None, norm: str | None = None) -> Any:
        return function(self, s, dim, norm, inverse)

    for suffix, transform in (("", one), ("2", two), ("n", many)):
        complex_decomposes(getattr(aten, f"fft_{name}{suffix}"))(transform)


for _name, _function, _inverse in (
    ("fft", _to_complex, False),
    ("ifft", _to_complex, True),
    ("rfft", _to_half_spectrum, False),
    ("ihfft", _to_half_spectrum, True),
    ("irfft", _to_real, True),
    ("hfft", _to_real, False),
):
    _register(_name, _function, _inverse)
