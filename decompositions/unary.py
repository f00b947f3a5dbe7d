"""Decompositions of functions of one number, of xlogy and of logaddexp into exponentials and logarithms."""

import math
from typing import Any

import torch
from torch import Tensor

from fx_onnx.decompositions.arithmetic import floating, promoted
from fx_onnx.decompositions.registry import aten, decomposes

# ---------------------------------------------------------------- exponentials


@decomposes(aten.expm1.default, aten.special_expm1.default)
def expm1(self: Tensor) -> Tensor:
    """Returns exp(self) - 1 = tanh(self / 2) * (exp(self) + 1), which loses no digits where self is small."""
    (x,) = floating(self)
    return torch.tanh(x * 0.5) * (torch.exp(x) + 1)


@decomposes(aten.log1p.default, aten.special_log1p.default)
def log1p(self: Tensor) -> Tensor:
    """Returns log(1 + self), which is accurate where self is small.

    The error of rounding u = 1 + self cancels in log(u) * self / (u - 1). Source: W. Kahan, as the HP-15C computes it.
    """
    (x,) = floating(self)
    rounded = 1 + x
    exact = (rounded == 1) | (x == torch.inf)
    return torch.where(exact, x, torch.log(rounded) * (x / (rounded - 1)))


@decomposes(aten.logit.default)
def logit(self: Tensor, eps: float | None = None) -> Tensor:
    """Returns log(self / (1 - self)), with self clamped to [eps, 1 - eps]."""
    (x,) = floating(self)
    if eps is not None:
        x = torch.clamp(x, eps, 1 - eps)
    return torch.log(x / (1 - x))


def _softplus(x: Tensor) -> Tensor:
    """Returns log(1 + exp(x))."""
    return torch.nn.functional.softplus(x, threshold=1000)


@decomposes(aten.logaddexp.default)
def logaddexp(self: Tensor, other: Tensor) -> Tensor:
    """Returns log(exp(self) + exp(other)).

    The difference of equal operands counts as 0, because that of equal infinities is NaN.
    """
    self, other = promoted(self, other)
    difference = torch.where(self == other, 0.0, -torch.abs(self - other))
    return torch.maximum(self, other) + _softplus(difference)


@decomposes(aten.logaddexp2.default)
def logaddexp2(self: Tensor, other: Tensor) -> Tensor:
    """Returns log2(2 ** self + 2 ** other)."""
    self, other = promoted(self, other)
    difference = torch.where(self == other, 0.0, -torch.abs(self - other))
    return torch.maximum(self, other) + _softplus(difference * math.log(2)) * (1 / math.log(2))


@decomposes(aten.ldexp.Tensor)
def ldexp(self: Tensor, other: Tensor) -> Tensor:
    """Returns self * 2 ** other."""
    return self * torch.pow(2.0, other)


@decomposes(aten.frexp.Tensor)
def frexp(self: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the mantissa, whose magnitude is in [0.5, 1), and the exponent, which is 0 for zero, infinities and NaN.

    The exponent from the logarithm may be wrong by one, and the mantissa corrects it. The scaling multiplies by two
    powers of 2, because 2 ** 128 is not a float32. Subnormal numbers are scaled up first.
    """
    plain = (self == 0) | ~(torch.abs(self) < torch.inf)
    x = torch.where(plain, 1.0, self)
    limits = torch.finfo(self.dtype)
    subnormal = torch.abs(x) < limits.smallest_normal
    x = torch.where(subnormal, x / limits.eps, x)
    exponent = torch.floor(torch.log2(torch.abs(x))) + 1
    half = torch.floor(exponent / 2)
    mantissa = x * torch.exp2(-half) * torch.exp2(half - exponent)
    high, low = torch.abs(mantissa) >= 1, torch.abs(mantissa) < 0.5
    mantissa = torch.where(high, mantissa / 2, torch.where(low, mantissa * 2, mantissa))
    exponent = exponent + high.to(self.dtype) - low.to(self.dtype)
    exponent = torch.where(subnormal, exponent + math.log2(limits.eps), exponent)
    return torch.where(plain, self, mantissa), torch.where(plain, 0.0, exponent).to(torch.int32)


# ---------------------------------------------------------------- products with logarithms


@decomposes(aten.xlogy.Tensor, aten.xlogy.Scalar_Other, aten.xlogy.Scalar_Self)
def xlogy(self: Any, other: Any) -> Tensor:
    """Returns self * log(other), or 0 where self is 0, unless other is NaN."""
    self, other = (x if isinstance(x, Tensor) else torch.tensor(float(x)) for x in floating(self, other))
    product = self * torch.log(other)
    return torch.where((self == 0) & (other == other), 0.0, product)


@decomposes(aten.special_xlog1py.default, aten.special_xlog1py.other_scalar, aten.special_xlog1py.self_scalar)
def special_xlog1py(self: Any, other: Any) -> Tensor:
    """Returns self * log(1 + other), or 0 where self is 0, unless other is NaN."""
    self, other = (x if isinstance(x, Tensor) else torch.tensor(float(x)) for x in floating(self, other))
    product = self * torch.log1p(other)
    return torch.where((self == 0) & (other == other), 0.0, product)


@decomposes(aten.special_entr.default)
def special_entr(self: Tensor) -> Tensor:
    """Returns -self * log(self), which is 0 at 0 and -inf below."""
    (x,) = floating(self)
    return torch.where(x == 0, 0.0, torch.where(x < 0, -torch.inf, -x * torch.log(x)))


# ---------------------------------------------------------------- angles


@decomposes(aten.sinc.default, aten.special_sinc.default)
def sinc(self: Tensor) -> Tensor:
    """Returns sin(pi self) / (pi self), which is 1 at 0."""
    (x,) = floating(self)
    angle = x * math.pi
    return torch.where(x == 0, 1.0, torch.sin(angle) / angle)


@decomposes(aten.angle.default)
def angle(self: Tensor) -> Tensor:
    """Returns the angle of a real number: pi below zero, 0 elsewhere, and NaN for NaN."""
    (x,) = floating(self)
    turned = torch.where(x < 0, torch.pi, 0.0).to(x.dtype)
    return turned if x is not self else torch.where(torch.isnan(x), x, turned)


# ---------------------------------------------------------------- NaN


@decomposes(aten.nan_to_num.default)
def nan_to_num(
    self: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Returns self, because an integer is neither NaN nor infinite. Tensors of floats have a translation."""
    return torch.clone(self)
