"""The one comparison of a value of the ONNX program with that of PyTorch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from fx_onnx.onnx_model.tolerances import OUTLIER_FACTOR, Limits, distance_of, distances, largest, limits_of
from fx_onnx.onnx_model.weights import real_view

__all__ = [
    "TORCH_ONNX",
    "Difference",
    "Tolerance",
    "as_pair",
    "compare",
    "differences_of",
    "errors_in_double",
]


TORCH_ONNX = Limits(1e-3)
"""The tolerance of ``torch.onnx.verification``, relative to each element, for all dtypes."""


@dataclass(frozen=True)
class Tolerance:
    """The tolerances that the caller gives; None is the default of the dtype.

    Attributes:
        rtol: the allowed difference relative to the largest magnitude of the expected value.
        atol: the allowed absolute difference, which is added to the relative one.
        by_element: whether ``rtol`` is relative to the magnitude of each element.
        check_dtype: whether the dtypes must be equal.
        check_shape: whether the shapes must be equal; False compares after broadcasting.
        outliers: the share of the elements that may differ by any amount; None is the default of the dtype.
    """

    rtol: float | None = None
    atol: float | None = None
    by_element: bool = False
    check_dtype: bool = True
    check_shape: bool = True
    outliers: float | None = None

    def limits(self, dtype: torch.dtype) -> Limits:
        """Returns what values of a dtype may differ by. There are no outliers if the caller gives a tolerance."""
        default = limits_of(dtype)
        if self.rtol is None and self.atol is None and self.outliers is None:
            return default
        rtol = default.rtol if self.rtol is None else self.rtol
        atol = default.atol if self.atol is None else self.atol
        return Limits(rtol, atol, self.outliers or 0.0)


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
    name: str, expected: Any, actual: torch.Tensor, tolerance: Tolerance | None = None, module: str = ""
) -> Difference:
    """Compares one value.

    Args:
        name: the name for the result.
        expected: the tensor or number of PyTorch. A complex tensor is compared as its real view if ``actual`` is real.
        found: the tensor of the ONNX program.
        tolerance: the allowed difference; None depends on the dtype.
        module: the path of the module that computed the value.
    """
    tolerance = tolerance or Tolerance()
    expected, actual = as_pair(expected, actual)
    if not tolerance.check_shape:
        expected, actual = torch.broadcast_tensors(expected, actual)
    limits, factor = tolerance.limits(expected.dtype), OUTLIER_FACTOR if tolerance.outliers is None else math.inf
    far = distance_of(expected, actual, limits, tolerance.by_element, factor, tolerance.check_dtype)
    relative = far.most / far.scale if far.scale else math.inf if far.most else 0.0
    dtype, shape = str(expected.dtype).removeprefix("torch."), tuple(expected.shape)
    return Difference(
        name, dtype, shape, far.most, relative, far.nonfinite, far.allowed, far.problem, module, far.outliers
    )


def differences_of(pairs: Iterable[tuple[str, Any, Any]], tolerance: Tolerance) -> list[Difference]:
    """Returns the difference of each pair: its name, the value of PyTorch and that of the ONNX program."""
    return [compare(name, expected, torch.as_tensor(actual), tolerance) for name, expected, actual in pairs]


def as_pair(expected: Any, actual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns both values as tensors on the CPU; ``expected`` as the model holds it if ``actual`` is real."""
    if not isinstance(expected, torch.Tensor):
        is_cut = isinstance(expected, float) and not actual.is_floating_point()  # an integer dtype drops its fraction
        expected = torch.as_tensor(expected, dtype=None if is_cut else actual.dtype)
    expected, actual = expected.detach().cpu(), actual.detach().cpu()
    return expected if actual.is_complex() else real_view(expected), actual


def errors_in_double(expected: Any, actual: torch.Tensor, exact: Any) -> tuple[float, float]:
    """Returns the error of PyTorch's value and that of the ONNX value, compared with the value in float64.

    The error of floats is the largest difference of elements that are finite on all three sides. The error of the ONNX
    value is infinite if it has another shape, or if an element is finite or NaN or infinite unlike in PyTorch and in
    float64. The error of integers and booleans is the number of elements that differ.
    """
    eager, onnx, exact = (real_view(torch.as_tensor(value).detach().cpu()) for value in (expected, actual, exact))
    if not eager.shape == onnx.shape == exact.shape:
        return 0.0, math.inf
    if not onnx.dtype.is_floating_point:
        return float((eager != exact).sum()), float((onnx != exact).sum())
    (_, of_eager), (_, of_onnx) = distances(eager, exact), distances(onnx, exact)
    if bool((of_eager.isfinite() & of_onnx.isinf()).any()):
        return 0.0, math.inf
    finite = of_eager.isfinite() & of_onnx.isfinite()
    return largest(of_eager[finite]), largest(of_onnx[finite])
