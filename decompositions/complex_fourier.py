"""The three Fourier transforms of ATen, by the transform of pairs of real numbers ``torch.ops.fx_onnx.dft``."""

import torch
from torch import Tensor

from fx_onnx.decompositions.registry import Complex, complex_decomposes

aten = torch.ops.aten

# How ATen says what to divide by: nothing, √n or n.
NOTHING, ROOT, COUNT = 0, 1, 2
LONGEST_MATRIX = 1024


def _interleaved(x: Complex | Tensor) -> Tensor:
    """Both parts, or the one, along a last axis."""
    return torch.stack((x.real, x.imag), -1) if isinstance(x, Complex) else x.unsqueeze(-1)


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
def _fft_c2c(self: Complex, dim: list[int], normalization: int, forward: bool) -> Complex:
    """Complex to complex."""
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
def _fft_c2r(self: Complex, dim: list[int], normalization: int, last_dim_size: int) -> Tensor:
    """Complex to real: the inverse of the one-sided transform."""
    x = _interleaved(self)
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
    rest = half.narrow(axis, 1, length - length // 2 - 1).flip(axis)
    return torch.cat((half, torch.stack((rest.select(-1, 0), -rest.select(-1, 1)), -1)), axis)
