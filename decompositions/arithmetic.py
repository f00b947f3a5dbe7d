"""Decompositions of quotients, remainders, interpolations and sign functions into simpler arithmetic."""

from typing import Any

import torch
from torch import Tensor

from fx_onnx.decompositions.registry import aten, decomposes

Number = bool | int | float


def _is_negative(number: Tensor) -> Tensor:
    """Returns whether the sign bit is set; -0.0 has it as well, and its reciprocal is -inf."""
    return (number < 0) | (torch.reciprocal(number) < 0)


def promoted(*operands: Any) -> tuple[Any, ...]:
    """Returns one or two operands, with the tensors cast to the dtype in which torch computes with them."""
    return _cast(_result_type(operands), operands)


def floating(*operands: Any) -> tuple[Any, ...]:
    """Returns one or two operands, with the tensors cast to a common floating-point dtype."""
    dtype = _result_type(operands)
    return _cast(dtype if dtype.is_floating_point else torch.get_default_dtype(), operands)


def _result_type(operands: tuple[Any, ...]) -> torch.dtype:
    """Returns the dtype of a result of one or two operands; torch would ask for the value of a symbolic number."""
    first, last = (_EXAMPLES.get(type(x), x) for x in (operands[0], operands[-1]))
    return torch.result_type(first, last)


_EXAMPLES = {torch.SymInt: 1, torch.SymFloat: 1.0}


def _cast(dtype: torch.dtype, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the operands, with the tensors cast to ``dtype``. A symbolic number becomes a tensor without axes."""

    def cast(operand: Any) -> Any:
        if type(operand) in _EXAMPLES:
            return torch.full((), operand, dtype=dtype)
        return operand.to(dtype) if isinstance(operand, Tensor) and operand.dtype != dtype else operand

    return tuple(map(cast, operands))


# ---------------------------------------------------------------- division


@decomposes(aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide(self: Tensor, other: Any) -> Tensor:
    """Returns the quotient rounded down, as Python's // computes it.

    It is derived from the remainder, because floor(self / other) is wrong where the division rounds up to an integer.
    A number beside a tensor of half precision stays a number of float32, as in torch.
    """
    dtype, operands = _result_type((self, other)), (self, other)
    is_half = dtype in (torch.float16, torch.bfloat16)
    if is_half and not all(isinstance(x, Tensor) and (x.dim() or x.dtype == dtype) for x in operands):
        wide: Tensor = torch.floor_divide(*_cast(torch.float32, operands))
        return wide.to(dtype)
    self, other = _cast(dtype, operands)
    remainder = torch.fmod(self, other)
    quotient = (self - remainder) / other
    inexact = torch.sign(remainder) * _sign(other) < 0
    quotient = torch.round(torch.where(inexact, quotient - 1, quotient))
    if isinstance(other, Tensor):
        return torch.where(other == 0, self / other, quotient)
    return quotient if other != 0 else self / other


def _sign(number: Any) -> Any:
    """Returns the sign of a tensor or of a number."""
    return torch.sign(number) if isinstance(number, Tensor) else (number > 0) - (number < 0)


@decomposes(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_mode(self: Tensor, other: Any, *, rounding_mode: str | None) -> Tensor:
    """Returns the quotient: exact, truncated, or rounded down."""
    if rounding_mode == "floor":
        return torch.floor_divide(self, other)
    quotient = torch.true_divide(self, other)
    return quotient if rounding_mode is None else torch.trunc(quotient)


@decomposes(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor)
def remainder(self: Any, other: Any) -> Tensor:
    """Returns Python's remainder: C's fmod, plus the divisor where the two have different signs."""
    if not isinstance(self, Tensor):
        self = torch.full_like(other, self, dtype=torch.result_type(self, other))
    self, other = promoted(self, other)
    result = torch.fmod(self, other)
    if isinstance(other, Tensor):
        return torch.where(torch.sign(result) * torch.sign(other) < 0, result + other, result)
    return torch.where(result < 0 if other > 0 else result > 0, result + other, result)


# ---------------------------------------------------------------- interpolation


@decomposes(aten.lerp.Scalar)
def lerp_scalar(self: Tensor, end: Tensor, weight: Number) -> Tensor:
    """Returns self + weight * (end - self), computed from the nearer end, so that a weight of 1 gives ``end``."""
    if isinstance(weight, torch.SymFloat):
        return lerp(self, end, torch.full((), weight, dtype=self.dtype))
    if abs(weight) < 0.5:
        return self + weight * (end - self)
    return end - (end - self) * (1 - weight)


@decomposes(aten.lerp.Tensor)
def lerp(self: Tensor, end: Tensor, weight: Tensor) -> Tensor:
    """Returns self + weight * (end - self), computed from the nearer end, so that a weight of 1 gives ``end``."""
    difference = end - self
    near, far = self + weight * difference, end - difference * (1 - weight)
    return torch.where(torch.abs(weight) < 0.5, near, far)


# ---------------------------------------------------------------- signs and directions


@decomposes(aten.signbit.default)
def signbit(self: Tensor) -> Tensor:
    """Returns whether the sign bit is set, also for -0.0."""
    if not self.dtype.is_floating_point:
        return self < 0
    return _is_negative(self)


@decomposes(aten.copysign.Tensor, aten.copysign.Scalar)
def copysign(self: Tensor, other: Any) -> Tensor:
    """Returns the magnitude of self with the sign of other."""
    self, other = floating(self, other)
    if not isinstance(other, Tensor):
        negative = str(float(other)).startswith("-")
        return -torch.abs(self) if negative else torch.abs(self)
    magnitude = torch.abs(self)
    return torch.where(_is_negative(other), -magnitude, magnitude)


@decomposes(aten.atan2.default)
def atan2(self: Tensor, other: Tensor) -> Tensor:
    """Returns the angle of the point (other, self).

    Where the magnitudes are equal, the ratio is the product of the signs, which is right for two zeros and two
    infinities as well.
    """
    y, x = floating(self, other)
    ratio = torch.where(torch.abs(y) == torch.abs(x), torch.sign(y) * torch.sign(x), y / x)
    half_turn = torch.where(_is_negative(y), -torch.pi, torch.pi).to(ratio.dtype)
    return torch.atan(ratio) + torch.where(_is_negative(x), half_turn, 0.0)


@decomposes(aten.hypot.default)
def hypot(self: Tensor, other: Tensor) -> Tensor:
    """Returns sqrt(self² + other²), scaled by the larger operand so that no square overflows."""
    first, second = promoted(torch.abs(self), torch.abs(other))
    large, small = torch.maximum(first, second), torch.minimum(first, second)
    ratio = small / torch.where((large == 0) | torch.isinf(large), 1.0, large)
    return large * torch.sqrt(1 + ratio * ratio)


@decomposes(aten.nextafter.default)
def nextafter(self: Tensor, other: Tensor) -> Tensor:
    """Returns the neighbouring floating-point number of self in the direction of other.

    Source: Rump, Zimmermann, Boldo, Melquiond, "Computing predecessor and successor in rounding to nearest" (2009): x +
    u(1 + 2u)|x| + eta rounds to the next number, where u is half the epsilon and eta is the smallest positive number.
    """
    self, other = promoted(self, other)
    limits = torch.finfo(self.dtype)
    unit, smallest = limits.eps / 2, limits.smallest_normal * limits.eps
    step = torch.abs(self) * (unit * (1 + 2 * unit)) + smallest
    down, up = torch.clamp(self - step, min=limits.min), torch.clamp(self + step, max=limits.max)
    up = torch.where(self >= limits.max, torch.inf, torch.where(torch.isinf(self), limits.min, up))
    down = torch.where(self <= limits.min, -torch.inf, torch.where(torch.isinf(self), limits.max, down))
    moved = torch.where(other > self, up, torch.where(other < self, down, other))
    return torch.where(torch.isnan(self), self, moved)


# ---------------------------------------------------------------- common divisors


@decomposes(aten.lcm.default)
def lcm(self: Tensor, other: Tensor) -> Tensor:
    """Returns the least common multiple; 0 where an operand is 0."""
    self, other = promoted(self, other)
    divisor = torch.gcd(self, other)
    quotient = torch.div(self, torch.where(divisor == 0, 1, divisor), rounding_mode="trunc")
    return torch.abs(quotient * other)
