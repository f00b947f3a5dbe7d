"""Comparisons, tests for NaN and infinity, extremes, limits and selection."""

import math

import torch

from tests.harness import Case, b8, cases, check, f16, f32, f64, i32, i64, u8

aten = torch.ops.aten
SPECIAL = (0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan)


@cases(
    [
        Case(aten.eq.Tensor, i64(2, 3), i64(3), emits=["Equal"]),
        Case(aten.eq.Scalar, u8(3, values=(0, 254, 255)), -1),
        Case(aten.lt.Scalar, u8(3, values=(0, 254, 255)), -1),
        Case(aten.eq.Scalar, i64(2, 3), 1, emits=["Equal"]),
        Case(aten.eq.Scalar, i64(2, 3), 0.5, emits=["Cast", "Equal"]),
        Case(aten.eq.Tensor, b8(2, 3), b8(3), emits=["Equal"]),
        Case(aten.ne.Scalar, i64(2, 3), 0, emits=["Equal", "Not"]),
        Case(aten.ne.Tensor, f32(7, values=SPECIAL), f32(7, values=SPECIAL), emits=["Equal", "Not"]),
        Case(aten.lt.Tensor, f32(2, 3), f64(3), emits=["Cast", "Less"]),
        Case(aten.lt.Tensor, f32(2, 3), f64(), emits=["Cast", "Less"]),
        Case(aten.lt.Tensor, b8(2, 3), b8(3), emits=["Cast", "Cast", "Less"]),
        Case(aten.le.Scalar, f32(2, 3), 0.5, emits=["LessOrEqual"]),
        Case(aten.gt.Tensor, i32(2, 3), i64(3), emits=["Cast", "Greater"]),
        Case(aten.ge.Tensor, f32(0, 3), f32(3), emits=["GreaterOrEqual"]),
        Case(aten.greater_equal.Scalar, u8(2, 3), 1, emits=["GreaterOrEqual"]),
        Case(aten.isclose.default, f32(7, values=SPECIAL), f32(7, values=SPECIAL), equal_nan=True),
        Case(aten.isclose.default, i64(2, 3), i64(3), rtol=0.5),
    ]
)
def test_comparisons(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.isnan.default, f32(7, values=SPECIAL), emits=["IsNaN"]),
        Case(aten.isnan.default, i64(3)),
        Case(aten.isinf.default, f32(7, values=SPECIAL), emits=["IsInf"]),
        Case(aten.isinf.default, f16(7, values=SPECIAL), opsets=[18], emits=["Cast", "IsInf"]),
        Case(aten.isposinf.default, f32(7, values=SPECIAL), emits=["IsInf"]),
        Case(aten.isneginf.default, f32(7, values=SPECIAL), emits=["IsInf"]),
        Case(aten.isfinite.default, f32(7, values=SPECIAL), emits=["Abs", "Less"]),
        Case(aten.isfinite.default, i64(3)),
    ]
)
def test_nan_and_infinity(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.maximum.default, f32(7, values=SPECIAL), f32(1), emits=["Max"]),
        Case(aten.minimum.default, f32(7, values=SPECIAL), f32(1), emits=["Min"]),
        Case(aten.maximum.default, b8(2, 3), b8(3), emits=["Or"]),
        Case(aten.minimum.default, i64(2, 3), f32(3), emits=["Cast", "Min"]),
        Case(aten.max.other, i64(2, 3), i64(3), emits=["Greater", "Where"]),
        Case(aten.fmax.default, f32(7, values=SPECIAL), f32(7, 1, values=SPECIAL)),
        Case(aten.fmin.default, f32(7, values=SPECIAL), f32(7, 1, values=SPECIAL)),
        Case(aten.fmin.default, i64(2, 3), i64(3), emits=["Less", "Where"]),
        Case(aten.clamp.default, f32(7, values=SPECIAL), -1, 1, emits=["Clip"]),
        Case(aten.clamp.default, f32(2, 3), min=0.5, emits=["Clip"]),
        Case(aten.clamp.default, f32(7, values=SPECIAL), min=0, emits=["Clip"]),
        Case(aten.clamp.default, f32(7, values=SPECIAL), max=50000.0, opsets=[10, 12, 18], emits=["Clip"]),
        Case(aten.clamp_min.default, f64(7, values=SPECIAL), -math.inf, emits=["Clip"]),
        Case(aten.clamp_max.default, f16(7, values=SPECIAL), 1.0),
        Case(aten.clamp.default, f32(2, 3), 1, -1, emits=["Clip"]),
        Case(aten.clamp.default, i64(2, 3), 0.5, emits=["Cast", "Clip"]),
        Case(aten.clamp.Tensor, f32(2, 3), f32(3), f32(2, 1, low=1.0), emits=["Max", "Min"]),
        Case(aten.clamp_min.default, f32(2, 3), 0.0, emits=["Clip"]),
        Case(aten.clamp_max.default, i64(2, 3), 1, emits=["Less", "Where"]),
        Case(aten.clamp_min.Tensor, f32(2, 3), f32(), emits=["Max"]),
    ]
)
def test_extremes(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.where.self, b8(2, 3), f32(2, 3), f32(3), emits=["Where"]),
        Case(aten.where.self, b8(2, 3), f32(2, 3), i64(), emits=["Cast", "Where"]),
        Case(aten.where.ScalarOther, b8(2, 3), f32(2, 3), -math.inf, emits=["Where"]),
        Case(aten.where.ScalarSelf, b8(2, 3), 2.5, i64(2, 3), emits=["Cast", "Where"]),
        Case(aten.where.Scalar, b8(2, 3), 1, 0, emits=["Where"]),
        Case(aten.heaviside.default, f32(7, values=SPECIAL), f32(1), emits=["Equal", "Greater", "Cast", "Where"]),
    ]
)
def test_selection(case: Case) -> None:
    check(case)
