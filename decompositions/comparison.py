"""Kinds of numbers and extremes, in terms of comparisons."""

import torch
from torch import Tensor

from fx_onnx.decompositions.arithmetic import promoted
from fx_onnx.decompositions.registry import aten, decomposes


@decomposes(aten.isnan.default, aten.isinf.default, aten.isposinf.default, aten.isneginf.default)
def is_special(self: Tensor) -> Tensor:
    """False: an integer is neither NaN nor infinite. (What is true of floats has a translation.)"""
    return self != self


@decomposes(aten.isfinite.default)
def isfinite(self: Tensor) -> Tensor:
    """Whether the magnitude is below infinity, which that of NaN is not."""
    if not self.dtype.is_floating_point:
        return self == self
    return torch.abs(self) < torch.inf


@decomposes(aten.isreal.default)
def isreal(self: Tensor) -> Tensor:
    """True of all real numbers, NaN among them."""
    return torch.ones_like(self, dtype=torch.bool)


@decomposes(aten.isclose.default)
def isclose(self: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False) -> Tensor:
    """|self - other| <= atol + rtol * |other|; an infinity is close to itself only, NaN to NaN if ``equal_nan``."""
    close = self == other
    if rtol == 0 and atol == 0:
        return close if not equal_nan else close | (torch.isnan(self) & torch.isnan(other))
    if not self.dtype.is_floating_point:
        self, other = self.to(torch.get_default_dtype()), other.to(torch.get_default_dtype())
    difference = torch.abs(self - other)
    close = close | ((difference <= atol + torch.abs(rtol * other)) & (difference < torch.inf))
    return close | (torch.isnan(self) & torch.isnan(other)) if equal_nan else close


@decomposes(aten.fmax.default)
def fmax(self: Tensor, other: Tensor) -> Tensor:
    """The larger of two, or the one that is a number."""
    self, other = promoted(self, other)
    return torch.where((self >= other) | torch.isnan(other), self, other)


@decomposes(aten.fmin.default)
def fmin(self: Tensor, other: Tensor) -> Tensor:
    """The smaller of two, or the one that is a number."""
    self, other = promoted(self, other)
    return torch.where((self <= other) | torch.isnan(other), self, other)
