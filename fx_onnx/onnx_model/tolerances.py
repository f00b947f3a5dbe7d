"""The one table of tolerances: by how much equal values of two computations may differ."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

__all__ = ["Limits", "are_close", "limits_of", "relative_distance"]


class Limits(NamedTuple):
    """What values may differ by.

    Attributes:
        rtol: the largest difference relative to the largest expected magnitude.
        atol: added to it, because an output of zeros has no magnitude to be relative to.
        outliers: the share of the elements that may exceed both, by a factor.
    """

    rtol: float
    atol: float = 1e-7
    outliers: float = 0.0


_LIMITS: dict[torch.dtype, Limits] = {
    torch.float64: Limits(1e-6),
    torch.float32: Limits(1e-4),
    torch.float16: Limits(1e-2, outliers=1e-3),
    torch.bfloat16: Limits(5e-2, outliers=1e-3),
}
_FLOAT8 = Limits(0.25)
_EXACT = Limits(0.0, 0.0)


def limits_of(dtype: torch.dtype) -> Limits:
    """Returns by how much values of a dtype may differ. Integers and booleans must be equal.

    A number of 16 bits has 3 or 2 significant digits. ONNX Runtime and PyTorch round intermediate results in a
    different order, so among many elements a few differ by several roundings although both sides are right. A tensor of
    fewer than 1,000 elements has no outliers.
    """
    is_inexact = dtype.is_floating_point or dtype.is_complex
    return _LIMITS.get(dtype.to_real(), _FLOAT8) if is_inexact else _EXACT


def are_close(got: torch.Tensor, want: torch.Tensor) -> bool:
    """Returns whether two results of PyTorch have one shape and dtype, and differ by no more than their tolerance."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    limits = limits_of(want.dtype)
    if not limits.rtol or not want.numel():
        return torch.equal(got, want)
    got, want = (tensor.to(torch.complex128 if tensor.is_complex() else torch.float64) for tensor in (got, want))
    largest = torch.nan_to_num(want.abs(), nan=0.0, posinf=0.0).max().item()
    return torch.allclose(got, want, rtol=0.0, atol=limits.atol + limits.rtol * largest, equal_nan=True)


def relative_distance(results: Iterable[Any], expected: Iterable[Any]) -> float:
    """Returns the largest difference of floats in two sequences of results, relative to the largest of each result.

    It is inf where a result is not finite, and what is expected is.
    """
    distance = 0.0
    for result, right in zip(results, expected, strict=True):
        if isinstance(right, torch.Tensor) and right.is_floating_point() and right.numel():
            finite = right.isfinite()
            difference = torch.where(finite, result.to(right.dtype) - right, 0).abs().max().item()
            largest = torch.where(finite, right, 0).abs().max().item()
            distance = max(distance, difference / max(largest, 1e-5) if difference == difference else float("inf"))
    return distance
