"""Decompositions of reductions into sum, mean, amax and amin."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fx_onnx.decompositions._norms import at_least_float32, vector_norm
from fx_onnx.decompositions._sizes import is_known
from fx_onnx.decompositions.registry import aten, decomposes

Number = bool | int | float
Dims = int | Sequence[int] | None


def _axes(self: Tensor, dim: Dims) -> list[int]:
    """Returns the reduced axes, none of them negative; None and an empty list mean all axes."""
    if self.dim() == 0:
        return []
    axes = [] if dim is None else [dim] if isinstance(dim, int) else list(dim)
    return [axis % self.dim() for axis in axes] or list(range(self.dim()))


def _moments(self: Tensor, dim: Dims, correction: Number | None, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Returns Σ (self - mean)² / max(0, n - correction), where the correction is 1 by default, and the mean.

    Half precision is computed in float32, as torch does: the sum of the squares may be too large for float16.
    """
    axes, exact = _axes(self, dim), at_least_float32(self)
    correction = 1 if correction is None else correction
    mean = exact.mean(axes, keepdim=True)
    deviation = exact - mean
    square = (deviation * deviation.conj()).real if self.is_complex() else deviation * deviation
    if is_known(correction, 0):
        var = square.mean(axes, keepdim=keepdim)
    else:
        count = math.prod(self.size(axis) for axis in axes)
        var = square.sum(axes, keepdim=keepdim) / torch.sym_max(count - correction, 0)
    return var, mean if keepdim or not axes else mean.squeeze(axes)


@decomposes(aten.var_mean.correction)
def var_mean_correction(
    self: Tensor, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns Σ (self - mean)² / max(0, n - correction), where the correction is 1 by default, and the mean."""
    var, mean = _moments(self, dim, correction, keepdim)
    return var.to(self.dtype.to_real()), mean.to(self.dtype)


@decomposes(aten.var.correction)
def var_correction(
    self: Tensor, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> Tensor:
    """Returns Σ (self - mean)² / max(0, n - correction), where the correction is 1 by default."""
    return var_mean_correction(self, dim, correction=correction, keepdim=keepdim)[0]


@decomposes(aten.std.correction)
def std_correction(
    self: Tensor, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> Tensor:
    """Returns √var."""
    return std_mean_correction(self, dim, correction=correction, keepdim=keepdim)[0]


@decomposes(aten.std_mean.correction)
def std_mean_correction(
    self: Tensor, dim: Dims = None, *, correction: Number | None = None, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns √var and the mean."""
    var, mean = _moments(self, dim, correction, keepdim)
    return var.sqrt().to(self.dtype.to_real()), mean.to(self.dtype)


@decomposes(aten.linalg_vector_norm.default)
def linalg_vector_norm(
    self: Tensor, ord: Number = 2, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Returns (Σ |self|^ord)^(1/ord); the extremes for ord = ±∞, and the count of nonzero elements for ord = 0."""
    axes = _axes(self, dim)
    size = self.abs()
    if dtype is not None:
        size = size.to(dtype.to_real())
    if ord == math.inf:
        return size.amax(axes, keepdim=keepdim)
    if ord == -math.inf:
        return size.amin(axes, keepdim=keepdim)
    if ord == 0:
        return (size != 0).to(size.dtype).sum(axes, keepdim=keepdim)
    if ord == 1:
        return size.sum(axes, keepdim=keepdim)
    if ord == 2:
        return vector_norm(size, 2, axes, keepdim)
    return at_least_float32(size).pow(ord).sum(axes, keepdim=keepdim).pow(1 / ord).to(size.dtype)


@decomposes(aten.norm.Scalar)
def norm_scalar(self: Tensor, p: Number = 2) -> Tensor:
    """Returns (Σ |self|^p)^(1/p)."""
    return vector_norm(self, p)


@decomposes(aten.norm.ScalarOpt_dim)
def norm_dim(self: Tensor, p: Number | None, dim: Sequence[int], keepdim: bool = False) -> Tensor:
    """Returns (Σ |self|^p)^(1/p) over ``dim``."""
    return vector_norm(self, 2 if p is None else p, _axes(self, dim), keepdim)


@decomposes(aten.norm.ScalarOpt_dtype)
def norm_dtype(self: Tensor, p: Number | None, *, dtype: torch.dtype) -> Tensor:
    """Returns (Σ |self|^p)^(1/p), computed in ``dtype``."""
    return vector_norm(self, 2 if p is None else p, dtype=dtype)


@decomposes(aten.norm.ScalarOpt_dim_dtype)
def norm_dim_dtype(self: Tensor, p: Number | None, dim: Sequence[int], keepdim: bool, *, dtype: torch.dtype) -> Tensor:
    """Returns (Σ |self|^p)^(1/p) over ``dim``, computed in ``dtype``."""
    return vector_norm(self, 2 if p is None else p, _axes(self, dim), keepdim, dtype=dtype)


@decomposes(aten.count_nonzero.default)
def count_nonzero(self: Tensor, dim: int | None = None) -> Tensor:
    """Returns the number of nonzero elements."""
    return (self != 0).sum(_axes(self, dim))


@decomposes(aten.count_nonzero.dim_IntList)
def count_nonzero_dim(self: Tensor, dim: Sequence[int]) -> Tensor:
    """Returns the number of nonzero elements along ``dim``."""
    return (self != 0).sum(_axes(self, dim))


@decomposes(aten.nansum.default)
def nansum(self: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """Returns the sum of the elements that are not NaN."""
    if self.is_floating_point():
        self = torch.where(self.isnan(), 0.0, self)
    return self.sum(_axes(self, dim), keepdim=keepdim, dtype=dtype)


@decomposes(aten.aminmax.default)
def aminmax(self: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Returns the smallest and the largest element."""
    axes = _axes(self, dim)
    return self.amin(axes, keepdim=keepdim), self.amax(axes, keepdim=keepdim)


@decomposes(aten.prod.default)
def prod(self: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """Returns the product of all elements."""
    return prod_dim(self.reshape(-1), 0, dtype=dtype)


@decomposes(aten.prod.dim_int)
def prod_dim(self: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """Returns the last of the cumulative products, which start from 1. Each product of integers wraps around."""
    self = self if dtype is None else self.to(dtype)
    if self.dim() == 0:
        return self.sum(dtype=dtype)
    one = torch.ones_like(self.sum(dim, keepdim=True), dtype=self.dtype)
    product = torch.cat((one, self), dim).cumprod(dim, dtype=dtype).narrow(dim, self.size(dim), 1)
    return product if keepdim else product.squeeze(dim)


@decomposes(aten.mean.default)
def mean(self: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """Returns Σ self / n, which is NaN for an empty tensor."""
    return self.sum(dtype=dtype) / self.numel()


@decomposes(aten.mean.dim)
def mean_dim(self: Tensor, dim: Dims, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """Returns Σ self / n over ``dim``, which is NaN for an empty axis."""
    axes = _axes(self, dim)
    return self.sum(axes, keepdim=keepdim, dtype=dtype) / math.prod(self.size(axis) for axis in axes)


def _count_true(truth: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    """Returns how many elements are true over ``dim``; an empty list of axes means no reduction."""
    if dim is not None and not isinstance(dim, int) and not len(dim):
        return truth.long()
    return truth.sum(_axes(truth, dim), keepdim=keepdim)


def _to_result_dtype(truth: Tensor, self: Tensor) -> Tensor:
    """Returns ``truth`` in the dtype of any and all: uint8 for uint8, and bool otherwise."""
    return truth.to(torch.uint8) if self.dtype == torch.uint8 else truth


@decomposes(aten.any.default, aten._is_any_true.default)
def any_default(self: Tensor) -> Tensor:
    """Returns whether an element is nonzero."""
    return _to_result_dtype(_count_true(self != 0, None, False) > 0, self)


@decomposes(aten.any.dim, aten.any.dims)
def any_dim(self: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Returns whether an element along ``dim`` is nonzero."""
    return _to_result_dtype(_count_true(self != 0, dim, keepdim) > 0, self)


@decomposes(aten.all.default, aten._is_all_true.default)
def all_default(self: Tensor) -> Tensor:
    """Returns whether no element is zero."""
    return _to_result_dtype(_count_true(self == 0, None, False) == 0, self)


@decomposes(aten.all.dim, aten.all.dims)
def all_dim(self: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Returns whether no element along ``dim`` is zero."""
    return _to_result_dtype(_count_true(self == 0, dim, keepdim) == 0, self)
