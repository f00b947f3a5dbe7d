"""The one table of tolerances: by how much equal values of two computations may differ."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

__all__ = [
    "OUTLIER_FACTOR",
    "Limits",
    "are_close",
    "distance_of",
    "distances",
    "largest",
    "limits_of",
    "relative_distance",
]


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


OUTLIER_FACTOR = 4
"""By how many times the allowed difference an outlier may differ."""


def distance_of(
    expected: torch.Tensor,
    actual: torch.Tensor,
    limits: Limits,
    by_element: bool = False,
    factor: float = OUTLIER_FACTOR,
) -> tuple[float, float, float, int, int, bool]:
    """Returns how far the values of two tensors of one shape are from each other.

    Args:
        expected: the values as they should be.
        actual: the values as they are, of the same shape.
        limits: by how much they may differ.
        by_element: whether ``limits.rtol`` is relative to the magnitude of each element.
        factor: by how many times the allowed difference an outlier may differ.

    Returns:
        The largest finite expected magnitude; the largest finite difference; what is allowed for that magnitude; how
        many elements are NaN or infinite on one side only, or infinite with different signs; how many differ by more
        than is allowed; and whether these are no more than the outliers that may.
    """
    magnitudes, absolute = distances(expected, actual)
    scale, most = largest(magnitudes[magnitudes.isfinite()]), largest(absolute[absolute.isfinite()])
    if not (most or limits.rtol or limits.atol):
        most = float(bool((expected != actual).any()))  # float64 rounds large 64-bit integers to equal numbers
    allowed = limits.atol + limits.rtol * scale
    exceeding = absolute > (limits.atol + limits.rtol * magnitudes if by_element else allowed)
    outliers = int((exceeding | absolute.isinf()).sum())
    few = outliers <= limits.outliers * expected.numel() and most <= factor * allowed
    return scale, most, allowed, int(absolute.isinf().sum()), outliers, few


def are_close(got: torch.Tensor, want: torch.Tensor, limits: Limits | None = None) -> bool:
    """Returns whether two results have one shape and dtype, and differ by no more than the limits, or their dtype's."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    _, most, allowed, nonfinite, _, few = distance_of(want, got, limits or limits_of(want.dtype))
    return not nonfinite and (few or most <= allowed)


def distances(expected: torch.Tensor, actual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the magnitude of each expected element and its difference from the other one, in float64.

    The difference is infinite if the elements are NaN or infinite on one side only, or infinite with different signs.
    """
    wide = torch.complex128 if expected.is_complex() or actual.is_complex() else torch.float64
    left, right = expected.to(wide), actual.to(wide)
    same = (left == right) | (left.isnan() & right.isnan())
    return left.abs(), torch.where(same, 0.0, (left - right).abs().nan_to_num(math.inf, math.inf))


def largest(values: torch.Tensor) -> float:
    """Returns the largest element; 0 if there is none."""
    return float(values.max()) if values.numel() else 0.0


def relative_distance(results: Iterable[Any], expected: Iterable[Any]) -> float:
    """Returns the largest difference of floats in two sequences of results, relative to the largest of each result.

    It is inf where a result is not finite, and what is expected is.
    """
    distance = 0.0
    for result, right in zip(results, expected, strict=True):
        if isinstance(right, torch.Tensor) and right.is_floating_point():
            magnitudes, differences = distances(right, result)
            finite = magnitudes.isfinite()
            distance = max(distance, largest(differences[finite]) / max(largest(magnitudes[finite]), 1e-5))
    return distance
