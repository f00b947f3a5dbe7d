"""Comparisons, tests for NaN and infinity, extremes, limits and selection."""

import math
from collections.abc import Callable
from typing import Any

import torch
from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.onnx_model import dtypes
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter, Operand, Scalar
from fx_onnx.translations._widening import emit_widened, is_float, one_node

# ---------------------------------------------------------------- comparisons

_COMPARISONS = {
    "Equal": (aten.eq.Tensor, aten.eq.Scalar),
    "Less": (aten.lt.Tensor, aten.lt.Scalar, aten.less.Tensor, aten.less.Scalar),
    "LessOrEqual": (aten.le.Tensor, aten.le.Scalar, aten.less_equal.Tensor, aten.less_equal.Scalar),
    "Greater": (aten.gt.Tensor, aten.gt.Scalar, aten.greater.Tensor, aten.greater.Scalar),
    "GreaterOrEqual": (aten.ge.Tensor, aten.ge.Scalar, aten.greater_equal.Tensor, aten.greater_equal.Scalar),
}


def _comparison(op_type: str) -> Callable[[Emitter, Value, Operand], Value]:
    def aten_comparison(op: Emitter, self: Value, other: Operand) -> Value:
        """Emits one comparison node in the dtype that torch promotes the operands to."""
        return emit_widened(op, op_type, *op.promote(self, other))

    return aten_comparison


for _op_type, _targets in _COMPARISONS.items():
    translates(*_targets)(_comparison(_op_type))


@translates(aten.ne.Tensor, aten.ne.Scalar, aten.not_equal.Tensor, aten.not_equal.Scalar)
def aten_ne(op: Emitter, self: Value, other: Operand) -> Value:
    """Emits Not(Equal), which is true for NaN because NaN is not equal to itself."""
    return op.Not(op.Equal(*op.promote(self, other)))


# ---------------------------------------------------------------- NaN and infinity


_FLOAT_TESTS: dict[Any, tuple[str, dict[str, int]]] = {
    aten.isnan.default: ("IsNaN", {}),
    aten.isinf.default: ("IsInf", {}),
    aten.isposinf.default: ("IsInf", {"detect_negative": 0}),
    aten.isneginf.default: ("IsInf", {"detect_positive": 0}),
}


for _target, _row in _FLOAT_TESTS.items():
    translates(_target, supports=is_float)(one_node(*_row))  # ONNX tests floats only


# ---------------------------------------------------------------- extremes and limits


def _extreme(op: Emitter, op_type: str, self: Operand, other: Operand) -> Value:
    """Emits Max or Min, which propagate NaN as torch does; booleans use Or and And."""
    first, second = op.promote(self, other, dtype=op.out[0].dtype)
    if first.dtype == DataType.BOOL:
        return op.Or(first, second) if op_type == "Max" else op.And(first, second)
    result: Value = op.emit(op_type, first, second)
    return result


def _are_not_floats(self: torch.Tensor, other: torch.Tensor) -> bool:
    return not (self.is_floating_point() or other.is_floating_point())


def _extreme_of_two(op_type: str) -> Callable[[Emitter, Value, Value], Value]:
    def aten_extreme_of_two(op: Emitter, self: Value, other: Value) -> Value:
        """Emits Max or Min.

        They propagate NaN, but fmax and fmin do not, so fmax and fmin of floats are decomposed.
        """
        return _extreme(op, op_type, self, other)

    return aten_extreme_of_two


for _op_type, _targets, _fmax in (
    ("Max", (aten.maximum.default, aten.max.other), aten.fmax.default),
    ("Min", (aten.minimum.default, aten.min.other), aten.fmin.default),
):
    translates(*_targets)(_extreme_of_two(_op_type))
    translates(_fmax, supports=_are_not_floats)(_extreme_of_two(_op_type))


@translates(aten.clamp.default, aten.clip.default)
def aten_clamp(op: Emitter, self: Value, min: Scalar | None = None, max: Scalar | None = None) -> Value:
    """Emits Clip to [min, max]; the result is max if min is larger than max.

    An absent limit of floats becomes an infinity, because ONNX takes the largest finite number for it.
    """
    if dtypes.is_float(op.out_dtype):
        min, max = -math.inf if min is None else min, math.inf if max is None else max
    low, high = (None if limit is None else op.cast(limit, op.out_dtype) for limit in (min, max))
    return op.Clip(op.cast(self, op.out_dtype), low, high)


@translates(aten.clamp.Tensor, aten.clip.Tensor)
def aten_clamp_tensor(op: Emitter, self: Value, min: Value | None = None, max: Value | None = None) -> Value:
    """Emits Max and Min with limits that broadcast with self."""
    result = op.cast(self, op.out_dtype)
    result = result if min is None else _extreme(op, "Max", result, min)
    return result if max is None else _extreme(op, "Min", result, max)


@translates(aten.clamp_min.default)
def aten_clamp_min(op: Emitter, self: Value, min: Scalar) -> Value:
    """Emits Clip with a lower limit."""
    return aten_clamp(op, self, min)


@translates(aten.clamp_max.default)
def aten_clamp_max(op: Emitter, self: Value, max: Scalar) -> Value:
    """Emits Clip with an upper limit."""
    return aten_clamp(op, self, None, max)


@translates(aten.clamp_min.Tensor)
def aten_clamp_min_tensor(op: Emitter, self: Value, min: Value) -> Value:
    """Emits Max."""
    return _extreme(op, "Max", self, min)


@translates(aten.clamp_max.Tensor)
def aten_clamp_max_tensor(op: Emitter, self: Value, max: Value) -> Value:
    """Emits Min."""
    return _extreme(op, "Min", self, max)


# ---------------------------------------------------------------- selection


@translates(aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther, aten.where.Scalar)
def aten_where(op: Emitter, condition: Value, self: Operand, other: Operand) -> Value:
    """Emits Where: self where the condition is true, else other."""
    first, second = op.promote(self, other, dtype=op.out[0].dtype)
    return op.Where(op.cast(condition, DataType.BOOL), first, second)


@translates(aten.heaviside.default)
def aten_heaviside(op: Emitter, self: Value, values: Value) -> Value:
    """Emits Where: ``values`` at zero, 1 above zero, and 0 below zero and for NaN."""
    zero: Any = False if self.dtype == DataType.BOOL else 0
    positive = op.cast(self, DataType.BOOL) if self.dtype == DataType.BOOL else op.Greater(self, zero)
    return op.Where(op.Equal(self, zero), values, op.cast(positive, op.out_dtype))
