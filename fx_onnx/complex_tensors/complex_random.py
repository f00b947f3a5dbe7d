"""Decompositions of random complex numbers: both parts are random."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_onnx.decompositions.registry import Complex, aten, complex_decomposes


@complex_decomposes(aten.rand.default)
def rand(size: Sequence[int], *, dtype: torch.dtype, **options: Any) -> Complex:
    """Returns numbers with parts in [0, 1)."""
    return Complex(*(torch.rand(size, dtype=dtype.to_real()) for _ in range(2)))


@complex_decomposes(aten.randn.default)
def randn(size: Sequence[int], *, dtype: torch.dtype, **options: Any) -> Complex:
    """Returns numbers with normal parts of variance 1/2, so that the variance of the number is 1."""
    return Complex(*(torch.randn(size, dtype=dtype.to_real()) * math.sqrt(0.5) for _ in range(2)))


def _shape(self: Complex | Tensor) -> Sequence[int]:
    """Returns the shape of the tensor."""
    return self.real.shape if isinstance(self, Complex) else self.shape


def _requested_dtype(self: Complex | Tensor, dtype: torch.dtype | None) -> torch.dtype:
    """Returns the given dtype, or that of the tensor or its parts; ``rand`` and ``randn`` use only its precision."""
    if dtype is not None:
        return dtype
    return self.real.dtype if isinstance(self, Complex) else self.dtype


@complex_decomposes(aten.rand_like.default)
def rand_like(self: Complex | Tensor, *, dtype: torch.dtype | None = None, **options: Any) -> Complex:
    """Returns ``rand`` in the shape of a tensor."""
    return rand(_shape(self), dtype=_requested_dtype(self, dtype))


@complex_decomposes(aten.randn_like.default)
def randn_like(self: Complex | Tensor, *, dtype: torch.dtype | None = None, **options: Any) -> Complex:
    """Returns ``randn`` in the shape of a tensor."""
    return randn(_shape(self), dtype=_requested_dtype(self, dtype))
