"""The three Fourier transforms of ATen, by the transform of pairs of real numbers ``torch.ops.fx_onnx.dft``."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fx_onnx.decompositions._sizes import is_known
from fx_onnx.decompositions.complex_numbers import as_complex, conjugate, real_part
from fx_onnx.decompositions.registry import Complex, Operand, aten, complex_decomposes

# How ATen says what to divide by: nothing, √n or n.
NOTHING, ROOT, COUNT = 0, 1, 2
LONGEST_MATRIX = 1024


def _interleaved(x: Operand) -> Tensor:
    """Both parts, or the one, along a last axis."""
    return torch.stack((x.real, x.imag), -1) if isinstance(x, Complex) else real_part(x).unsqueeze(-1)


def _scaled(x: Tensor, count: int, normalization: int, inverse: bool) -> Tensor:
    """What is divided by ``count`` in the inverse already, and is not otherwise, as it should be."""
    exponent = {NOTHING: 0.0, ROOT: -0.5, COUNT: -1.0}[normalization] + (1.0 if inverse else 0.0)
    if exponent == 0:
        return x
    return x * (count if exponent == 1 else count**exponent)


def _transform(x: Tensor, axes: list[int], inverse: bool) -> Tensor:
    for axis in axes:
        x = torch.ops.fx_onnx.dft(x, axis, inverse)
    return x


def _axes(x: Tensor, dim: list[int]) -> list[int]:
    return [axis % (x.dim() - 1) for axis in dim]


def _count(x: Tensor, axes: list[int]) -> int:
    count = 1
    for axis in axes:
        count = count * x.size(axis)
    return count


@complex_decomposes(aten._fft_c2c)
def _fft_c2c(self: Operand, dim: list[int], normalization: int, forward: bool) -> Complex:
    """Complex (or real) to complex."""
    x = _interleaved(self)
    axes = _axes(x, dim)
    y = _scaled(_transform(x, axes, not forward), _count(x, axes), normalization, not forward)
    return Complex(y.select(-1, 0), y.select(-1, 1))


@complex_decomposes(aten._fft_r2c)
def _fft_r2c(self: Tensor, dim: list[int], normalization: int, onesided: bool) -> Complex:
    """Real to complex: half of the last axis is enough, as the other half is its conjugate."""
    x = _interleaved(self)
    axes = _axes(x, dim)
    y = torch.ops.fx_onnx.dft(x, axes[-1], False, onesided)
    y = _scaled(_transform(y, axes[:-1], False), _count(x, axes), normalization, False)
    return Complex(y.select(-1, 0), y.select(-1, 1))


@complex_decomposes(aten._fft_c2r)
def _fft_c2r(self: Operand, dim: list[int], normalization: int, last_dim_size: int) -> Tensor:
    """Complex to real: the inverse of the one-sided transform."""
    x = _interleaved(as_complex(self))
    axes = _axes(x, dim)
    count = _count(x, axes[:-1]) * last_dim_size
    x, last = _transform(x, axes[:-1], True), axes[-1]
    if isinstance(last_dim_size, int) and isinstance(x.size(last), int) and last_dim_size <= LONGEST_MATRIX:
        y = torch.ops.fx_onnx.irdft(x, last, last_dim_size)
    else:
        y = torch.ops.fx_onnx.dft(_whole(x, last, last_dim_size), last, True).select(-1, 0)
    return _scaled(y, count, normalization, True)


def _whole(half: Tensor, axis: int, length: int) -> Tensor:
    """The whole spectrum of real numbers: after its half the conjugates of all but the ends, backwards."""
    half = half.narrow(axis, 0, length // 2 + 1)
    count = (length - 1) // 2
    rest = half.index_select(axis, count - torch.arange(count, device=half.device))
    return torch.cat((half, torch.stack((rest.select(-1, 0), -rest.select(-1, 1)), -1)), axis)


# ---------------------------------------------------------------- torch.fft, without the fake kernels of the above


def _normalization(norm: str | None, inverse: bool) -> int:
    """What a transform is divided by: ``backward`` (or None) means that the inverse is, by the count."""
    if norm == "ortho":
        return ROOT
    return COUNT if (norm == "forward") != inverse else NOTHING


def _floating(x: Operand) -> Operand:
    """Integers as torch's default dtype."""
    if isinstance(x, Tensor) and not x.is_floating_point():
        return x.to(torch.get_default_dtype())
    return x


def _resized(x: Tensor, sizes: Sequence[int | None], dim: Sequence[int]) -> Tensor:
    """Cut off or filled up with zeros at the end of each axis; a size of None or -1 is left."""
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


def _fitted(x: Operand, sizes: Sequence[int | None], dim: Sequence[int]) -> Operand:
    if isinstance(x, Complex):
        return Complex(_resized(x.real, sizes, dim), _resized(x.imag, sizes, dim))
    return _resized(real_part(x), sizes, dim)


def _plan(x: Operand, s: Sequence[int] | None, dim: Sequence[int] | None) -> tuple[list[int | None], list[int]]:
    """The sizes and the axes of a transform in several axes: by default all, or the last ones that have a size."""
    rank = real_part(x).dim()
    if dim is None:
        dim = range(rank) if s is None else range(rank - len(s), rank)
    axes = [axis % rank for axis in dim]
    return [None] * len(axes) if s is None else list(s), axes


def _to_complex(x: Operand, s: Any, dim: Any, norm: str | None, inverse: bool) -> Complex:
    x = _floating(x)
    sizes, axes = _plan(x, s, dim)
    if not axes:
        return as_complex(x)
    return _fft_c2c(_fitted(x, sizes, axes), axes, _normalization(norm, inverse), not inverse)


def _half(x: Operand, s: Any, dim: Any, norm: str | None, inverse: bool) -> Complex:
    """The one-sided transform of real numbers; the inverse is its conjugate."""
    x = _floating(x)
    sizes, axes = _plan(x, s, dim)
    found = _fft_r2c(_resized(real_part(x), sizes, axes), axes, _normalization(norm, inverse), True)
    return conjugate(found) if inverse else found


def _to_real(x: Operand, s: Any, dim: Any, norm: str | None, inverse: bool) -> Tensor:
    """From half a spectrum; that of a forward transform is conjugated first."""
    x = _floating(x)
    sizes, axes = _plan(x, s, dim)
    last = sizes[-1]
    if last is None or is_known(last, -1):
        last = 2 * (real_part(x).size(axes[-1]) - 1)
    x = as_complex(_fitted(x, [*sizes[:-1], last // 2 + 1], axes))
    return _fft_c2r(x if inverse else conjugate(x), axes, _normalization(norm, inverse), last)


def _register(name: str, function: Callable[..., Any], inverse: bool) -> None:
    """Registers torch.fft's transform in one axis, in two and in n."""

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
    ("rfft", _half, False),
    ("ihfft", _half, True),
    ("irfft", _to_real, True),
    ("hfft", _to_real, False),
):
    _register(_name, _function, _inverse)
