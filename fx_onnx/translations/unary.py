"""Functions of one number."""

import math
from collections.abc import Callable

import torch
from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.onnx_model import dtypes
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translation.quotients import truncated
from fx_onnx.translations._widening import emit_widened, is_float

# ---------------------------------------------------------------- one ONNX node

_FUNCTIONS = {
    aten.acos.default: "Acos",
    aten.acosh.default: "Acosh",
    aten.asin.default: "Asin",
    aten.asinh.default: "Asinh",
    aten.atan.default: "Atan",
    aten.atanh.default: "Atanh",
    aten.cos.default: "Cos",
    aten.cosh.default: "Cosh",
    aten.erf.default: "Erf",
    aten.exp.default: "Exp",
    aten.log.default: "Log",
    aten.reciprocal.default: "Reciprocal",
    aten.sigmoid.default: "Sigmoid",
    aten.sin.default: "Sin",
    aten.sinh.default: "Sinh",
    aten.special_erf.default: "Erf",
    aten.special_expit.default: "Sigmoid",
    aten.sqrt.default: "Sqrt",
    aten.tan.default: "Tan",
    aten.tanh.default: "Tanh",
}
# Roundings return integers unchanged; sign functions return booleans unchanged.
_ROUNDINGS = {aten.ceil.default: "Ceil", aten.floor.default: "Floor", aten.round.default: "Round"}
_SIGNED = {aten.abs.default: "Abs", aten.neg.default: "Neg", aten.sgn.default: "Sign", aten.sign.default: "Sign"}


def _function(op_type: str) -> Callable[[Emitter, Value], Value]:
    def aten_function(op: Emitter, self: Value) -> Value:
        """Emits one function node in the floating-point dtype that torch promotes to."""
        return emit_widened(op, op_type, op.cast(self, op.out_dtype))

    return aten_function


def _rounding(op_type: str) -> Callable[[Emitter, Value], Value]:
    def aten_rounding(op: Emitter, self: Value) -> Value:
        """Emits one rounding node for floats; integers stay unchanged."""
        return emit_widened(op, op_type, self) if dtypes.is_float(op.out_dtype) else op.Identity(self)

    return aten_rounding


def _sign(op_type: str) -> Callable[[Emitter, Value], Value]:
    def aten_sign(op: Emitter, self: Value) -> Value:
        """Emits one node for numbers; booleans stay unchanged."""
        return emit_widened(op, op_type, self) if self.dtype != DataType.BOOL else op.Identity(self)

    return aten_sign


for _make, _table in ((_function, _FUNCTIONS), (_rounding, _ROUNDINGS), (_sign, _SIGNED)):
    for _target, _op_type in _table.items():
        translates(_target)(_make(_op_type))

# ---------------------------------------------------------------- roundings


@translates(aten.trunc.default)
def aten_trunc(op: Emitter, self: Value) -> Value:
    """Emits Ceil below zero and Floor above; integers stay unchanged."""
    return truncated(op, self) if dtypes.is_float(op.out_dtype) else op.Identity(self)


@translates(aten.frac.default)
def aten_frac(op: Emitter, self: Value) -> Value:
    """Emits self - trunc(self), which has the sign of self."""
    return op.Sub(self, truncated(op, self))


@translates(aten.round.decimals)
def aten_round_decimals(op: Emitter, self: Value, decimals: int) -> Value:
    """Emits Round of self scaled by a power of ten; halves round to even."""
    if not dtypes.is_float(op.out_dtype):
        if decimals < 0:
            raise NotImplementedError(
                "round with negative decimals supports floating-point numbers only; cast the integers first."
            )
        return op.Identity(self)
    if decimals == 0:
        return emit_widened(op, "Round", self)
    scale = float(10 ** abs(decimals))
    if decimals > 0:
        return op.Div(emit_widened(op, "Round", op.Mul(self, scale)), scale)
    return op.Mul(emit_widened(op, "Round", op.Div(self, scale)), scale)


# ---------------------------------------------------------------- exponentials and logarithms


@translates(aten.exp2.default, aten.special_exp2.default)
def aten_exp2(op: Emitter, self: Value) -> Value:
    """Emits Pow: 2 ** self."""
    return op.Pow(op.cast(2.0, op.out_dtype), op.cast(self, op.out_dtype))


@translates(aten.log2.default)
def aten_log2(op: Emitter, self: Value) -> Value:
    """Emits Log divided by log(2)."""
    return op.Div(op.Log(op.cast(self, op.out_dtype)), math.log(2.0))


@translates(aten.log10.default)
def aten_log10(op: Emitter, self: Value) -> Value:
    """Emits Log divided by log(10)."""
    return op.Div(op.Log(op.cast(self, op.out_dtype)), math.log(10.0))


# ---------------------------------------------------------------- angles


@translates(aten.deg2rad.default)
def aten_deg2rad(op: Emitter, self: Value) -> Value:
    """Emits Mul by π / 180."""
    return op.Mul(op.cast(self, op.out_dtype), math.pi / 180.0)


@translates(aten.rad2deg.default)
def aten_rad2deg(op: Emitter, self: Value) -> Value:
    """Emits Mul by 180 / π."""
    return op.Mul(op.cast(self, op.out_dtype), 180.0 / math.pi)


# ---------------------------------------------------------------- NaN and infinities


@translates(aten.nan_to_num.default, supports=is_float)
def aten_nan_to_num(
    op: Emitter, self: Value, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Value:
    """Emits Where for NaN, and Clip or Where for infinities.

    By default, an infinity becomes the largest finite number of the dtype, which Clip produces.
    """
    limits = torch.finfo(op.out[0].dtype)
    result = op.Where(emit_widened(op, "IsNaN", self), nan or 0.0, self)
    if posinf is None and neginf is None:
        return op.Clip(result, limits.min, limits.max)
    high, low = limits.max if posinf is None else posinf, limits.min if neginf is None else neginf
    result = op.Where(emit_widened(op, "IsInf", self, detect_negative=0), high, result)
    return op.Where(emit_widened(op, "IsInf", self, detect_positive=0), low, result)
