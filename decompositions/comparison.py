"""Decompositions of tests such as isfinite and isclose, and of fmax and fmin, into comparisons."""

from typing import Any

import torch
from torch import Tensor

from fx_onnx.decompositions.arithmetic import promoted
from fx_onnx.decompositions.registry import aten, decomposes


@decomposes(aten.isnan.default, aten.isinf.default, aten.isposinf.default, aten.isneginf.default)
def is_special(self: Tensor) -> Tensor:
    """Returns False, because an integer is neither NaN nor infinite. Tensors of floats have a translation."""
    return self != self


@decomposes(aten.isfinite.default)
def isfinite(self: Tensor) -> Tensor:
    """Returns whether the magnitude is below infinity, which is false for NaN."""
    if not self.dtype.is_floating_point:
        return self == self
    return torch.abs(self) < torch.inf


@decomposes(aten.isreal.default)
def isreal(self: Tensor) -> Tensor:
    """Returns True for all real numbers, and for NaN."""
    return torch.ones_like(self, dtype=torch.bool)


@decomposes(aten.isclose.default)
def isclose(self: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """Returns |self - other| <= atol + rtol * |other|.

    An infinity is close to itself only; NaN is close to NaN if ``equal_nan``.
    """
    close = self == other
    if rtol == 0 and atol == 0:
        return close if not equal_nan else close | (torch.isnan(self) & torch.isnan(other))
    if not self.dtype.is_floating_point:
        self, other = self.to(torch.get_default_dtype()), other.to(torch.get_default_dtype())
    difference = torch.abs(self - other)
    close = close | ((difference <= atol + torch.abs(rtol * other)) & (difference < torch.inf))
    return close | (torch.isnan(self) & torch.isnan(other)) if equal_nan else close


@decomposes(aten.isin.Tensor_Tensor, aten.isin.Tensor_Scalar, aten.isin.Scalar_Tensor)
def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Returns whether each element equals one of ``test_elements``. NaN equals none."""
    is_one: Tensor
    if not isinstance(elements, Tensor):
        is_one = (test_elements == elements).any()
    elif not isinstance(test_elements, Tensor):
        is_one = elements == test_elements
    else:
        is_one = (elements.unsqueeze(-1) == test_elements.reshape(-1)).any(-1)
    return ~is_one if invert else is_one


@decomposes(aten.fmax.default)
def fmax(self: Tensor, other: Tensor) -> Tensor:
    """Returns the larger operand, or the other operand where one is NaN."""
    self, other = promoted(self, other)
    return torch.where((self >= other) | torch.isnan(other), self, other)


@decomposes(aten.fmin.default)
def fmin(self: Tensor, other: Tensor) -> Tensor:
    """Returns the smaller operand, or the other operand where one is NaN."""
    self, other = promoted(self, other)
    return torch.where((self <= other) | torch.isnan(other), self, other)
