"""Compares one tensor of the ONNX program with that of PyTorch, with tolerances that depend on the dtype."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Difference", "Tolerance", "compare"]

RELATIVE_TOLERANCE: dict[torch.dtype, float] = {
    torch.float64: 1e-6,
    torch.float32: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
"""The largest allowed difference, relative to the largest expected magnitude. Integers and booleans must be equal."""
FLOAT8_TOLERANCE = 0.25
ABSOLUTE_TOLERANCE = 1e-7
"""Added to the tolerance of floats, because an output of zeros has no magnitude to be relative to."""

OUTLIER_SHARE: dict[torch.dtype, float] = {torch.float16: 1e-3, torch.bfloat16: 1e-3}
"""The share of the elements that may exceed the default tolerance, up to ``OUTLIER_FACTOR`` times the tolerance.

A number of 16 bits has 3 or 2 significant digits. ONNX Runtime and PyTorch round intermediate results in a different
order, so among many elements a few differ by several roundings although both sides are right. A tensor of fewer than
1,000 elements has no outliers.
"""
OUTLIER_FACTOR = 4


@dataclass(frozen=True)
class Tolerance:
    """The tolerances that the caller gives; None is the default of the dtype.

    Attributes:
        rtol: the allowed difference relative to the largest magnitude of the expected value.
        atol: the allowed absolute difference, which is added to the relative one.
    """

    rtol: float | None = None
    atol: float | None = None

    def allowed(self, dtype: torch.dtype, scale: float) -> float:
        """Returns the allowed absolute difference for values of this scale, the largest expected magnitude."""
        inexact = dtype.is_floating_point or dtype.is_complex
        relative = RELATIVE_TOLERANCE.get(dtype.to_real(), FLOAT8_TOLERANCE) if inexact else 0.0
        absolute = ABSOLUTE_TOLERANCE if inexact else 0.0
        return (absolute if self.atol is None else self.atol) + (relative if self.rtol is None else self.rtol) * scale

    def outlier_share(self, dtype: torch.dtype) -> float:
        """Returns the share of the elements that may exceed the tolerance; 0 if the caller gives a tolerance."""
        return OUTLIER_SHARE.get(dtype, 0.0) if self.rtol is None and self.atol is None else 0.0


@dataclass(frozen=True)
class Difference:
    """The difference between one value of the ONNX program and of the PyTorch module.

    Attributes:
        name: the name of the ONNX value.
        dtype: the dtype of the PyTorch value, for example ``float32``.
        shape: the shape of the PyTorch value.
        max_abs: the largest absolute difference of finite elements; inf if the shapes differ.
        max_rel: ``max_abs`` divided by the largest finite magnitude of the PyTorch value.
        nonfinite: how many elements are NaN or infinite on one side only, or infinite with different signs.
        tolerance: the allowed absolute difference.
        problem: why the values do not agree, as text; empty if they agree.
        module: the path of the module that computed the value; empty for the root module and for outputs.
        outliers: how many elements exceed the tolerance.
        note: why a difference above the tolerance is no error: PyTorch's own value is less accurate.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    max_abs: float
    max_rel: float
    nonfinite: int
    tolerance: float
    problem: str
    module: str = ""
    outliers: int = 0
    note: str = ""

    @property
    def ok(self) -> bool:
        """True if the values agree, or if PyTorch's own value is less accurate."""
        return not self.problem

    @property
    def verdict(self) -> str:
        """``agrees``, ``differs`` or ``inaccurate in eager``."""
        return "differs" if self.problem else "inaccurate in eager" if self.note else "agrees"


def compare(
    name: str,
    expected: Any,
    found: torch.Tensor,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    module: str = "",
) -> Difference:
    """Compares one value.

    Args:
        name: the name for the result.
        expected: the tensor or number of PyTorch. A complex tensor is compared as its real view if ``found`` is real.
        found: the tensor of the ONNX program.
        rtol: the relative tolerance, as for verify().
        atol: the absolute tolerance, as for verify().
        module: the path of the module that computed the value.
    """
    if not isinstance(expected, torch.Tensor):
        is_cut = isinstance(expected, float) and not found.is_floating_point()  # an integer dtype drops its fraction
        expected = torch.as_tensor(expected, dtype=None if is_cut else found.dtype)
    expected = expected.detach().cpu()
    if expected.is_complex() and not found.is_complex():
        expected = torch.view_as_real(expected.resolve_conj())
    dtype, shape = str(expected.dtype).removeprefix("torch."), tuple(expected.shape)
    if tuple(found.shape) != shape:
        problem = f"the shape is {list(found.shape)} instead of {list(shape)}"
        return Difference(name, dtype, shape, math.inf, math.inf, 0, 0.0, problem, module)
    tolerance = Tolerance(rtol, atol)
    measured = _measure(expected, found, tolerance)
    allowed = tolerance.allowed(expected.dtype, measured.scale)
    few = measured.outliers <= tolerance.outlier_share(expected.dtype) * expected.numel()
    if found.dtype != expected.dtype:
        problem = f"the dtype is {str(found.dtype).removeprefix('torch.')} instead of {dtype}"
    elif measured.nonfinite:
        problem = (
            f"{measured.nonfinite} elements are NaN or infinite on one side only, or infinite with different signs"
        )
    elif measured.max_abs > allowed and not (few and measured.max_abs <= OUTLIER_FACTOR * allowed):
        problem = f"the largest difference is {measured.max_abs:.3g}, but at most {allowed:.3g} is allowed"
    else:
        problem = ""
    return Difference(
        name, dtype, shape, measured.max_abs, measured.max_rel, measured.nonfinite, allowed, problem, module,
        measured.outliers,
    )  # fmt: skip


@dataclass(frozen=True)
class _Measures:
    """The largest difference and the largest expected magnitude of finite elements, and the counts of a Difference."""

    max_abs: float
    scale: float
    nonfinite: int
    outliers: int

    @property
    def max_rel(self) -> float:
        if self.scale:
            return self.max_abs / self.scale
        return 0.0 if self.max_abs == 0 else math.inf


def _measure(expected: torch.Tensor, found: torch.Tensor, tolerance: Tolerance) -> _Measures:
    wide = torch.complex128 if expected.is_complex() or found.is_complex() else torch.float64
    left, right = expected.to(wide), found.to(wide)
    finite = left.isfinite() & right.isfinite()
    same = (left == right) | (left.isnan() & right.isnan())
    nonfinite = int((~finite & ~same).sum())
    if not bool(finite.any()):
        return _Measures(0.0, 0.0, nonfinite, nonfinite)
    differences = torch.where(finite, left - right, 0).abs()
    largest = differences.max().item()
    if not largest and not expected.dtype.is_floating_point and not expected.dtype.is_complex:
        largest = float(bool((expected != found).any()))  # float64 rounds large 64-bit integers to equal numbers
    scale = torch.where(left.isfinite(), left, 0).abs().max().item()
    outliers = nonfinite + int((differences > tolerance.allowed(expected.dtype, scale)).sum())
    return _Measures(largest, scale, nonfinite, outliers)
