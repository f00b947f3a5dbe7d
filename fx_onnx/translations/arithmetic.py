"""Sums, products, quotients, remainders and powers."""

from typing import Any

import torch
from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.onnx_model import dtypes
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter, Operand, Scalar
from fx_onnx.translation.quotients import OVERFLOWING, truncated, without_minus_one
from fx_onnx.translations._loop_node import emit_loop
from fx_onnx.translations._widening import emit_widened, keeps_numbers


def _is_known_to_equal(number: Scalar, value: float) -> bool:
    """Returns whether a number is known to equal ``value``.

    A symbolic number is not compared, because that would specialize it.
    """
    return isinstance(number, (bool, int, float)) and number == value


# ---------------------------------------------------------------- sums and products


@translates(aten.add.Tensor, aten.add.Scalar)
def aten_add(op: Emitter, self: Operand, other: Operand, alpha: Scalar = 1) -> Value:
    """Emits Add: self + alpha * other. Booleans use Or, because ONNX Add does not admit them."""
    first, second = op.promote(self, other, dtype=op.out[0].dtype)
    if first.dtype == DataType.BOOL:
        return op.Or(first, second if _is_known_to_equal(alpha, 1) else op.And(second, bool(alpha)))
    return op.Add(first, _scaled(op, second, alpha))


@translates(aten.sub.Tensor, aten.sub.Scalar)
def aten_sub(op: Emitter, self: Operand, other: Operand, alpha: Scalar = 1) -> Value:
    """Emits Sub: self - alpha * other."""
    first, second = op.promote(self, other, dtype=op.out[0].dtype)
    return op.Sub(first, _scaled(op, second, alpha))


@translates(aten.rsub.Tensor, aten.rsub.Scalar)
def aten_rsub(op: Emitter, self: Operand, other: Operand, alpha: Scalar = 1) -> Value:
    """Emits Sub: other - alpha * self."""
    return aten_sub(op, other, self, alpha)


def _scaled(op: Emitter, value: Value, factor: Scalar) -> Value:
    return value if _is_known_to_equal(factor, 1) else op.Mul(value, factor)


@translates(aten.mul.Tensor, aten.mul.Scalar)
@keeps_numbers
def aten_mul(op: Emitter, self: Operand, other: Operand) -> Value:
    """Emits Mul; booleans use And."""
    first, second = op.promote(self, other, dtype=op.out[0].dtype)
    return op.And(first, second) if first.dtype == DataType.BOOL else op.Mul(first, second)


@translates(aten.square.default)
def aten_square(op: Emitter, self: Value) -> Value:
    """Emits Mul of self by itself, in torch's result dtype: booleans are squared as integers."""
    base = op.cast(self, op.out_dtype)
    return op.Mul(base, base)


@translates(aten.addcmul.default)
@keeps_numbers
def aten_addcmul(op: Emitter, self: Value, tensor1: Value, tensor2: Value, value: Scalar = 1) -> Value:
    """Emits self + value * tensor1 * tensor2."""
    base, first, second = op.promote(self, tensor1, tensor2, dtype=op.out[0].dtype)
    return op.Add(base, op.Mul(_scaled(op, first, value), second))


@translates(aten.addcdiv.default)
@keeps_numbers
def aten_addcdiv(op: Emitter, self: Value, tensor1: Value, tensor2: Value, value: Scalar = 1) -> Value:
    """Emits self + value * tensor1 / tensor2."""
    base, first, second = op.promote(self, tensor1, tensor2, dtype=op.out[0].dtype)
    return op.Add(base, op.Div(_scaled(op, first, value), second))


# ---------------------------------------------------------------- quotients and remainders


@translates(aten.div.Tensor, aten.div.Scalar)
@keeps_numbers
def aten_div(op: Emitter, self: Operand, other: Operand) -> Value:
    """Emits Div in the floating-point dtype that torch promotes to."""
    first, second = op.promote(self, other, dtype=op.out[0].dtype)
    return op.Div(first, second)


def _result_type(*operands: Any) -> torch.dtype:
    """Returns ``torch.result_type`` of fake tensors and numbers."""
    return torch.result_type(*(x if isinstance(x, torch.Tensor) else _example(x) for x in operands))


def _example(number: Any) -> Any:
    """Returns a plain number of the same kind as a symbolic one, whose value must not be read."""
    if isinstance(number, torch.SymInt):
        return 1
    return 1.0 if isinstance(number, torch.SymFloat) else number


def _are_integers(self: Any, other: Any) -> bool:
    return not _result_type(self, other).is_floating_point


def _rounds_exactly(self: Any, other: Any, rounding_mode: str | None = None) -> bool:
    """Returns whether Div and a rounding give torch's result; floor division of floats is decomposed."""
    return rounding_mode != "floor" or _are_integers(self, other)


@translates(aten.div.Tensor_mode, aten.div.Scalar_mode, supports=_rounds_exactly)
@keeps_numbers
def aten_div_mode(op: Emitter, self: Operand, other: Operand, rounding_mode: str | None) -> Value:
    """Emits Div, followed by a truncation or an integer floor."""
    first, second = op.promote(self, other, dtype=op.out[0].dtype)
    if rounding_mode is None:
        return op.Div(first, second)
    if dtypes.is_float(op.out_dtype):
        return truncated(op, op.Div(first, second))
    return _quotient(op, self, other, rounds_down=rounding_mode == "floor")


def _may_overflow(op: Emitter, dividend: Operand, divisor: Operand) -> bool:
    """Returns whether the lowest number of the result's dtype may be divided by -1."""
    dtype = op.out_dtype
    return dtype in OVERFLOWING and _may_be(int(dtype.min), dividend, dtype) and _may_be(-1, divisor, dtype)


def _may_be(number: int, operand: Operand, dtype: DataType) -> bool:
    """Returns whether an operand may be a negative number of a dtype, which is -1 or the lowest number."""
    if isinstance(operand, Value):
        own = operand.dtype or dtype
        return dtypes.is_integer(own) and bool(own.min <= number)
    if isinstance(operand, torch.SymInt):
        return not symbolic_sizes.expression(operand).is_nonnegative
    return dtypes.wrapped(int(operand), dtype) == number


def _quotient(op: Emitter, self: Operand, other: Operand, rounds_down: bool) -> Value:
    """Returns the quotient of integers, truncated or rounded down."""
    first, second = op.promote(self, other, dtype=op.out[0].dtype)
    if _may_overflow(op, self, other):
        if isinstance(other, int):
            return op.Neg(first)
        first, second = without_minus_one(op, first, second)
    return _floor_quotient(op, first, second, other) if rounds_down else op.Div(first, second)


def _floor_quotient(op: Emitter, first: Value, second: Value, divisor: Operand) -> Value:
    """Returns the quotient of integers rounded down; ONNX Div truncates.

    No step overflows, and all are exact. A known divisor tells on which side of the dividend the truncated quotient is.
    For an unknown one, the Python remainder minus the C remainder is 0, or the divisor where the two quotients differ.
    """
    quotient, dtype = op.Div(first, second), op.out_dtype
    if dtypes.is_unsigned(dtype):
        return quotient
    product = op.Mul(quotient, second)
    if isinstance(divisor, int) and dtype.min <= divisor <= dtype.max:
        is_rounded_up = op.Greater(product, first) if divisor > 0 else op.Less(product, first)
        return op.Sub(quotient, op.Cast(is_rounded_up, to=dtype))
    difference = op.Sub(op.Mod(first, second), op.Sub(first, product))
    return op.Sub(quotient, op.Div(difference, second))


@translates(aten.floor_divide.default, aten.floor_divide.Scalar, supports=_are_integers)
def aten_floor_divide(op: Emitter, self: Operand, other: Operand) -> Value:
    """Emits Div of integers, corrected to round down."""
    return _quotient(op, self, other, rounds_down=True)


@translates(aten.fmod.Tensor, aten.fmod.Scalar)
def aten_fmod(op: Emitter, self: Operand, other: Operand) -> Value:
    """Emits Mod with fmod=1: the C remainder, which has the sign of self.

    For int64 it is self - Div(self, other) * other, because ONNX Runtime computes Mod with fmod=1 in float64.
    """
    first, second = op.promote(self, other, dtype=op.out[0].dtype)
    if op.out_dtype == DataType.INT64:
        second = op.Abs(second) if _may_overflow(op, self, other) else second  # the sign does not matter
        return op.Sub(first, op.Mul(op.Div(first, second), second))
    return op.Mod(first, second, fmod=1)


_REMAINDERS = aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor


@translates(*_REMAINDERS, supports=_are_integers)
@translates(*_REMAINDERS, since=28)
def aten_remainder(op: Emitter, self: Operand, other: Operand) -> Value:
    """Emits Mod: the Python remainder, which has the sign of other. Below opset 28, it admits integers only."""
    first, second = op.promote(self, other, dtype=op.out[0].dtype)
    if _may_overflow(op, self, other):
        one = op.cast(1, op.out_dtype)  # 0 is the remainder of 1 and of -1
        second = one if isinstance(other, int) else op.Where(op.Equal(second, -1), one, second)
    return op.Mod(first, second)


@translates(aten.gcd.default)
def aten_gcd(op: Emitter, self: Value, other: Value) -> Value:
    """Emits a Loop of Euclid's algorithm, which runs until all remainders are zero."""
    first, second = op.promote(self, other, dtype=op.out[0].dtype)
    sizes, zero, one = op.shape(op.out_sizes), op.cast(0, op.out_dtype), op.cast(1, op.out_dtype)

    def step(inner: Emitter, iteration: Value, large: Value, small: Value) -> tuple[Value, Value]:
        finished = inner.Equal(small, zero)
        remainder = inner.Mod(large, inner.Where(finished, one, small))
        return inner.Where(finished, large, small), inner.Where(finished, zero, remainder)

    def is_unfinished(inner: Emitter, large: Value, small: Value) -> Value:
        count = inner.ReduceSum(inner.Cast(inner.Not(inner.Equal(small, zero)), to=DataType.INT64), keepdims=0)
        return inner.Greater(count, 0)

    start = [op.Expand(op.Abs(x), sizes) for x in (first, second)]
    return emit_loop(op, step, *start, condition=is_unfinished)[0]


# ---------------------------------------------------------------- powers


@translates(aten.pow.Tensor_Tensor, aten.pow.Scalar)
def aten_pow(op: Emitter, self: Operand, exponent: Operand) -> Value:
    """Emits Pow."""
    base, power = op.promote(self, exponent, dtype=op.out[0].dtype)
    if dtypes.is_float(op.out_dtype) or dtypes.is_unsigned(op.out_dtype):
        return emit_widened(op, "Pow", base, power)
    return _integer_power(op, base, power)


def _integer_power(op: Emitter, base: Value, power: Value) -> Value:
    """Returns a power of integers.

    ONNX leaves negative exponents undefined. torch returns 0 for them, except for the bases 1 and -1.
    """
    magnitude, zero = op.Abs(base), op.cast(0, op.out_dtype)
    vanishes = op.And(op.Less(power, zero), op.Not(op.Equal(magnitude, op.cast(1, op.out_dtype))))
    return op.Where(vanishes, zero, emit_widened(op, "Pow", base, op.Abs(power)))


@translates(aten.pow.Tensor_Scalar)
def aten_pow_scalar(op: Emitter, self: Value, exponent: Scalar) -> Value:
    """Emits Pow, or Mul, Sqrt or Reciprocal for common exponents.

    Powers of integers become products because Pow computes in floating point.
    """
    base = op.cast(self, op.out_dtype)
    if _is_known_to_equal(exponent, 1):
        return op.Identity(base)
    if not dtypes.is_float(op.out_dtype):
        if isinstance(exponent, int) and exponent > 1:
            return _power_by_products(op, base, exponent)
        return emit_widened(op, "Pow", base, _number(op, exponent))
    if _is_known_to_equal(exponent, 0.5):
        return op.Sqrt(base)
    return op.Reciprocal(base) if _is_known_to_equal(exponent, -1) else op.Pow(base, op.cast(exponent, op.out_dtype))


def _power_by_products(op: Emitter, base: Value, exponent: int) -> Value:
    """Returns a power by squaring, which wraps around as in torch."""
    half = base if exponent < 4 else _power_by_products(op, base, exponent // 2)
    square = op.Mul(half, half)
    return op.Mul(square, base) if exponent % 2 else square


def _number(op: Emitter, number: Scalar) -> Value:
    return op.cast(number, op.out_dtype)


@translates(aten.rsqrt.default)
def aten_rsqrt(op: Emitter, self: Value) -> Value:
    """Emits Reciprocal of Sqrt."""
    return op.Reciprocal(op.Sqrt(op.cast(self, op.out_dtype)))
