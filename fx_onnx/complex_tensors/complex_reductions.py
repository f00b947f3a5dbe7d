"""Decompositions of comparisons, tests, products, norms and variances of complex numbers."""

from typing import Any

import torch
from torch import Tensor

from fx_onnx.complex_tensors.complex_numbers import (
    as_complex,
    div,
    exp,
    log,
    magnitude,
    mul,
    norm_squared,
    parts,
    real_part,
    sqrt,
)
from fx_onnx.decompositions._norms import vector_norm
from fx_onnx.decompositions.registry import Complex, Operand, aten, complex_decomposes

_MAX_STEPS = 64
"""A longer axis is not summed step by step, because each step adds some operators to the graph."""


# ---------------------------------------------------------------- comparisons and tests


@complex_decomposes(aten.eq, aten.equal)
def eq(self: Operand, other: Operand) -> Tensor:
    """Returns whether both parts are equal."""
    (a, b), (c, d) = parts(self), parts(other)
    return torch.logical_and(a == c, (0.0 if b is None else b) == (0.0 if d is None else d))  # type: ignore[arg-type]


@complex_decomposes(aten.ne, aten.not_equal)
def ne(self: Operand, other: Operand) -> Tensor:
    """Returns whether a part differs."""
    (a, b), (c, d) = parts(self), parts(other)
    return torch.logical_or(a != c, (0.0 if b is None else b) != (0.0 if d is None else d))  # type: ignore[arg-type]


@complex_decomposes(aten.isnan)
def isnan(self: Complex) -> Tensor:
    """Returns whether a part is NaN."""
    return torch.isnan(self.real) | torch.isnan(self.imag)


@complex_decomposes(aten.isinf)
def isinf(self: Complex) -> Tensor:
    """Returns whether a part is infinite."""
    return torch.isinf(self.real) | torch.isinf(self.imag)


@complex_decomposes(aten.isfinite)
def isfinite(self: Complex) -> Tensor:
    """Returns whether both parts are finite."""
    return torch.isfinite(self.real) & torch.isfinite(self.imag)


@complex_decomposes(aten.isreal)
def isreal(self: Complex) -> Tensor:
    """Returns whether the imaginary part is 0."""
    return self.imag == 0


@complex_decomposes(aten.isclose)
def isclose(self: Operand, other: Operand, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Returns |self - other| <= atol + rtol |other|, or whether both are equal."""
    x, y = as_complex(self, other), as_complex(other, self)
    difference = magnitude(Complex(x.real - y.real, x.imag - y.imag))
    close = eq(x, y) | (torch.isfinite(difference) & (difference <= atol + rtol * magnitude(y)))
    return close | (isnan(x) & isnan(y)) if equal_nan else close


def is_nonzero(self: Operand) -> Any:
    """Returns whether a complex operand is nonzero; any other operand is returned unchanged."""
    return torch.logical_or(self.real != 0, self.imag != 0) if isinstance(self, Complex) else self


# Operators that read only whether numbers are zero.
ZERO_TESTS = frozenset(
    [
        "logical_not",
        "logical_and",
        "logical_or",
        "logical_xor",
        "all",
        "any",
        "count_nonzero",
        "nonzero",
        "nonzero_numpy",
        "nonzero_static",
        "argwhere",
    ]
)


# ---------------------------------------------------------------- products


def _from_polar(size: Tensor, angle: Tensor) -> Complex:
    """Returns the complex number with a given magnitude and angle."""
    return Complex(size * torch.cos(angle), size * torch.sin(angle))


@complex_decomposes(aten.prod.default)
def prod(self: Operand, *, dtype: torch.dtype | None = None) -> Complex:
    """Returns the product, from the product of the magnitudes and the sum of the angles."""
    z = as_complex(self)
    return _from_polar(magnitude(z).prod(), torch.atan2(z.imag, z.real).sum())


@complex_decomposes(aten.prod.dim_int)
def prod_dim(self: Operand, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Complex:
    """Returns the product over ``dim``, from the product of the magnitudes and the sum of the angles."""
    z = as_complex(self)
    return _from_polar(magnitude(z).prod(dim, keepdim), torch.atan2(z.imag, z.real).sum(dim, keepdim))


@complex_decomposes(aten.cumprod)
def cumprod(self: Operand, dim: int, *, dtype: torch.dtype | None = None) -> Complex:
    """Returns the cumulative product, from the cumulative product of magnitudes and the cumulative sum of angles."""
    z = as_complex(self)
    return _from_polar(torch.cumprod(magnitude(z), dim), torch.cumsum(torch.atan2(z.imag, z.real), dim))


# ---------------------------------------------------------------- norms and variances


def _norm(z: Complex, ord: float, dim: list[int] | None, keepdim: bool) -> Tensor:
    """Returns the norm of the magnitudes."""
    return vector_norm(magnitude(z), ord, dim, keepdim)


@complex_decomposes(aten.linalg_vector_norm)
def linalg_vector_norm(
    self: Complex,
    ord: float = 2,
    dim: list[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Returns the norm of the magnitudes; the Euclidean norm adds their squares without taking roots."""
    if ord == 2:
        squared = norm_squared(self)
        axes = list(range(squared.dim())) if dim is None else dim
        return torch.sqrt(squared.sum(axes, keepdim) if axes else squared)
    return _norm(self, ord, dim, keepdim)


@complex_decomposes(aten.norm.Scalar)
def norm(self: Complex, p: float = 2) -> Tensor:
    """Returns the norm of the magnitudes."""
    return _norm(self, p, None, False)


@complex_decomposes(aten.norm.ScalarOpt_dim, aten.norm.ScalarOpt_dim_dtype, aten.norm.ScalarOpt_dtype)
def norm_dim(
    self: Complex,
    p: float | None,
    dim: list[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Returns the norm of the magnitudes over ``dim``."""
    return _norm(self, 2 if p is None else p, dim or None, keepdim)


@complex_decomposes(aten.var.default)
def var(self: Complex, unbiased: bool = True) -> Tensor:
    """Returns the variance: the sum of the variances of the parts."""
    return torch.var(self.real, correction=int(unbiased)) + torch.var(self.imag, correction=int(unbiased))


@complex_decomposes(aten.var.dim)
def var_dim(self: Complex, dim: list[int] | None, unbiased: bool = True, keepdim: bool = False) -> Tensor:
    """Returns the variance: the sum of the variances of the parts."""
    return var_correction(self, dim, correction=int(unbiased), keepdim=keepdim)


@complex_decomposes(aten.var.correction)
def var_correction(
    self: Complex, dim: list[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    """Returns the variance: the sum of the variances of the parts."""
    real, imag = (torch.var(x, dim, correction=correction, keepdim=keepdim) for x in self)
    return real + imag


@complex_decomposes(aten.std.default)
def std(self: Complex, unbiased: bool = True) -> Tensor:
    """Returns the square root of the variance."""
    return torch.sqrt(var(self, unbiased))


@complex_decomposes(aten.std.dim)
def std_dim(self: Complex, dim: list[int] | None, unbiased: bool = True, keepdim: bool = False) -> Tensor:
    """Returns the square root of the variance."""
    return torch.sqrt(var_dim(self, dim, unbiased, keepdim))


@complex_decomposes(aten.std.correction)
def std_correction(
    self: Complex, dim: list[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    """Returns the square root of the variance."""
    return torch.sqrt(var_correction(self, dim, correction=correction, keepdim=keepdim))


def _mean(self: Complex, dim: list[int] | None, keepdim: bool) -> Complex:
    """Returns the mean over ``dim``."""
    return Complex(self.real.mean(dim, keepdim), self.imag.mean(dim, keepdim))


@complex_decomposes(aten.var_mean.default)
def var_mean(self: Complex, unbiased: bool = True) -> tuple[Tensor, Complex]:
    """Returns the variance and the mean."""
    return var(self, unbiased), Complex(self.real.mean(), self.imag.mean())


@complex_decomposes(aten.var_mean.dim)
def var_mean_dim(
    self: Complex, dim: list[int] | None, unbiased: bool = True, keepdim: bool = False
) -> tuple[Tensor, Complex]:
    """Returns the variance and the mean."""
    return var_dim(self, dim, unbiased, keepdim), _mean(self, dim, keepdim)


@complex_decomposes(aten.var_mean.correction)
def var_mean_correction(
    self: Complex, dim: list[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Complex]:
    """Returns the variance and the mean."""
    return var_correction(self, dim, correction=correction, keepdim=keepdim), _mean(self, dim, keepdim)


@complex_decomposes(aten.std_mean.default)
def std_mean(self: Complex, unbiased: bool = True) -> tuple[Tensor, Complex]:
    """Returns the standard deviation and the mean."""
    return std(self, unbiased), Complex(self.real.mean(), self.imag.mean())


@complex_decomposes(aten.std_mean.dim)
def std_mean_dim(
    self: Complex, dim: list[int] | None, unbiased: bool = True, keepdim: bool = False
) -> tuple[Tensor, Complex]:
    """Returns the standard deviation and the mean."""
    return std_dim(self, dim, unbiased, keepdim), _mean(self, dim, keepdim)


@complex_decomposes(aten.std_mean.correction)
def std_mean_correction(
    self: Complex, dim: list[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Tensor, Complex]:
    """Returns the standard deviation and the mean."""
    return std_correction(self, dim, correction=correction, keepdim=keepdim), _mean(self, dim, keepdim)


# ---------------------------------------------------------------- sums of exponentials


def _shifted_exp(self: Complex, dim: int | list[int]) -> tuple[Complex, Tensor]:
    """Returns e^(z - m) and m, where m is the largest real part along ``dim``, or 0 if that is infinite."""
    largest = self.real.amax(dim, keepdim=True)
    largest = torch.where(torch.isinf(largest), 0.0, largest)
    return exp(Complex(self.real - largest, self.imag)), largest


@complex_decomposes(aten.softmax.int)
def softmax(self: Complex, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Returns the softmax of the real part, because torch casts the input to the real ``dtype`` first."""
    return torch.softmax(self.real, dim, dtype=dtype)


@complex_decomposes(aten.log_softmax.int)
def log_softmax(self: Complex, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Returns the log-softmax of the real part, because torch casts the input to the real ``dtype`` first."""
    return torch.log_softmax(self.real, dim, dtype=dtype)


@complex_decomposes(aten.logsumexp)
def logsumexp(self: Complex, dim: list[int], keepdim: bool = False) -> Complex:
    """Returns log Σ e^z."""
    powers, largest = _shifted_exp(self, dim)
    result = log(Complex(powers.real.sum(dim, True), powers.imag.sum(dim, True)))
    result = Complex(result.real + largest, result.imag)
    return result if keepdim or not dim else Complex(result.real.squeeze(dim), result.imag.squeeze(dim))


def log_add_exp(x: Complex, y: Complex) -> Complex:
    """Returns log(e^x + e^y) = m + log(1 + e^(o - m)).

    Here m is the operand with the larger real part, and o is the other operand.
    """
    larger = x.real >= y.real
    most = Complex(torch.where(larger, x.real, y.real), torch.where(larger, x.imag, y.imag))
    other = Complex(torch.where(larger, y.real, x.real), torch.where(larger, y.imag, x.imag))
    same = (x.real == y.real) & torch.isinf(x.real)  # the difference of equal infinities is NaN
    power = exp(Complex(torch.where(same, 0.0, other.real - most.real), other.imag - most.imag))
    grown = log(Complex(1 + power.real, power.imag))
    return Complex(most.real + grown.real, most.imag + grown.imag)


@complex_decomposes(aten.logaddexp)
def logaddexp(self: Complex, other: Complex) -> Complex:
    """Returns log(e^self + e^other)."""
    return log_add_exp(Complex(*self), Complex(*other))


@complex_decomposes(aten.logcumsumexp)
def logcumsumexp(self: Complex, dim: int) -> Complex:
    """Returns the cumulative log Σ e^z.

    An axis of a known, small size is summed step by step as in torch, so that imaginary parts beyond ±π equal torch's.
    """
    if not self.real.dim():
        return self
    size = self.real.size(dim)
    if isinstance(size, int) and 0 < size <= _MAX_STEPS:
        sums = [Complex(self.real.narrow(dim, 0, 1), self.imag.narrow(dim, 0, 1))]
        for k in range(1, size):
            sums.append(log_add_exp(sums[-1], Complex(self.real.narrow(dim, k, 1), self.imag.narrow(dim, k, 1))))
        return Complex(torch.cat([z.real for z in sums], dim), torch.cat([z.imag for z in sums], dim))
    powers, largest = _shifted_exp(self, dim)
    result = log(Complex(torch.cumsum(powers.real, dim), torch.cumsum(powers.imag, dim)))
    return Complex(result.real + largest, result.imag)


# ---------------------------------------------------------------- operators on both parts at once


@complex_decomposes(aten.masked_select)
def masked_select(self: Complex, mask: Tensor) -> Complex:
    """Returns the numbers where mask is true.

    It selects both parts at once, so that they have the same data-dependent size.
    """
    sizes = torch.broadcast_shapes(self.real.shape, mask.shape)
    chosen = torch.stack((self.real.expand(sizes), self.imag.expand(sizes)), -1)[mask.expand(sizes)]
    return Complex(chosen.select(-1, 0), chosen.select(-1, 1))


@complex_decomposes(aten.copy.default)
def copy(self: Operand, src: Operand, non_blocking: bool = False) -> Complex:
    """Returns src, expanded to the shape of self."""
    z = as_complex(src, self)
    sizes = real_part(self).shape
    return Complex(z.real.expand(sizes), z.imag.expand(sizes))


@complex_decomposes(aten.as_strided, aten.as_strided_copy)
def as_strided(self: Complex, size: list[int], stride: list[int], storage_offset: int | None = None) -> Complex:
    """Returns the elements at the given strides; each part is read from its own contiguous storage."""
    real, imag = (x.clone(memory_format=torch.contiguous_format) for x in self)
    return Complex(real.as_strided(size, stride, storage_offset), imag.as_strided(size, stride, storage_offset))


@complex_decomposes(aten.rms_norm)
def rms_norm(
    input: Operand, normalized_shape: list[int], weight: Operand | None = None, eps: float | None = None
) -> Complex:
    """Returns input / √(mean(input²) + eps) * weight over the last axes.

    The square is the complex square, not that of the magnitude.
    """
    z = as_complex(input)
    axes = list(range(-len(normalized_shape), 0))
    squared = mul(z, z)
    eps = torch.finfo(z.real.dtype).eps if eps is None else eps
    root = sqrt(Complex(squared.real.mean(axes, True) + eps, squared.imag.mean(axes, True)))
    normal = div(z, root)
    return normal if weight is None else mul(normal, weight)
