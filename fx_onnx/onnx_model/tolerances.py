"""The one table of tolerances: by how much equal values of two computations may differ."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

__all__ = [
    "OUTLIER_FACTOR",
    "Distance",
    "Limits",
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


class Distance(NamedTuple):
    """How far the values of two tensors are from each other.

    Attributes:
        problem: why they do not agree, as text; empty if they agree.
        most: the largest finite difference; inf if the shapes differ.
        scale: the largest finite expected magnitude.
        allowed: what is allowed for that magnitude.
        nonfinite: how many elements are NaN or infinite on one side only, or infinite with different signs.
        outliers: how many elements differ by more than is allowed.
    """

    problem: str
    most: float
    scale: float = 1.0
    allowed: float = 0.0
    nonfinite: int = 0
    outliers: int = 0


def distance_of(
    expected: torch.Tensor,
    actual: torch.Tensor,
    limits: Limits | None = None,
    by_element: bool = False,
    factor: float = OUTLIER_FACTOR,
    check_dtype: bool = True,
) -> Distance:
    """Returns how far two tensors are from each other, and why they do not agree.

    Args:
        expected: the values as they should be.
        actual: the values as they are.
        limits: by how much they may differ; None is the default of the dtype.
        by_element: whether ``limits.rtol`` is relative to the magnitude of each element.
        factor: by how many times the allowed difference an outlier may differ.
        check_dtype: whether the dtypes must be equal.
    """
    if actual.shape != expected.shape:
        return Distance(f"the shape is {list(actual.shape)} instead of {list(expected.shape)}", math.inf)
    limits = limits or limits_of(expected.dtype)
    magnitudes, absolute = distances(expected, actual)
    scale, most = largest(magnitudes[magnitudes.isfinite()]), largest(absolute[absolute.isfinite()])
    if not (most or limits.rtol or limits.atol):
        most = float(bool((expected != actual).any()))  # float64 rounds large 64-bit integers to equal numbers
    allowed = limits.atol + limits.rtol * scale
    exceeding = absolute > (limits.atol + limits.rtol * magnitudes if by_element else allowed)
    outliers, nonfinite = int((exceeding | absolute.isinf()).sum()), int(absolute.isinf().sum())
    few = outliers <= limits.outliers * expected.numel() and most <= factor * allowed
    problem = ""
    if actual.dtype != expected.dtype and check_dtype:
        dtypes = (str(tensor.dtype).removeprefix("torch.") for tensor in (actual, expected))
        problem = f"the dtype is {' instead of '.join(dtypes)}"
    elif nonfinite and not (few and factor == math.inf):
        problem = f"{nonfinite} elements are NaN or infinite on one side only, or infinite with different signs"
    elif by_element and outliers and not few:
        problem = (
            f"{outliers} of {expected.numel()} elements differ by more than {limits.atol:.3g} plus {limits.rtol:.3g} "
            f"of their magnitude; the largest difference is {most:.3g}"
        )
    elif most > allowed and not few:
        problem = f"the largest difference is {most:.3g}, but at most {allowed:.3g} is allowed"
    return Distance(problem, most, scale, allowed, nonfinite, outliers)


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
