"""Cumulative sums, products, extremes and log-sum-exp."""

import torch

from tests.harness import Case, b8, cases, check, f32, f64, i32, i64

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")


@cases(
    [
        Case(aten.cumsum.default, f32(3, 4), 1, emits=["CumSum"]),
        Case(aten.cumsum.default, i32(3, 4), -2, emits=["Cast", "CumSum"]),
        Case(aten.cumsum.default, b8(5), 0),
        Case(aten.cumsum.default, f32(3), 0, dtype=torch.float64),
        Case(aten.cumsum.default, i64(3), 0, dtype=torch.int16),
        Case(aten.cumsum.default, f32(), 0),
        Case(aten.cumsum.default, f32(0, 2), 1),
        Case(aten.cumprod.default, f32(3, 4), 1, emits=["Expand", "Scan"], opsets=[20]),
        Case(aten.cumprod.default, i64(3, 4), 0, opsets=[20]),
        Case(aten.cumprod.default, f32(), 0),
        Case(aten.cumprod.default, b8(4), 0, opsets=[20]),
        Case(aten.cummax.default, f32(3, 4), 1),
        Case(aten.cummax.default, f32(6, values=(1.0, 3.0, 3.0, NAN, 5.0, -INF)), 0),
        Case(aten.cummax.default, b8(3, 4), 0),
        Case(aten.cummax.default, f32(), 0),
        Case(aten.cummin.default, i64(3, 4), -1),
        Case(aten.cummin.default, f64(3, 0), 0),
        Case(aten.logcumsumexp.default, f32(3, 4, low=-30, high=30), 1),
        Case(aten.logcumsumexp.default, f32(5, values=(-INF, -INF, 1.0, INF, 2.0)), 0),
        Case(aten.diff.default, f32(3, 4)),
        Case(aten.diff.default, b8(3, 4), 2, 0, dynamic=False),
        Case(aten.trapezoid.dx, f32(3, 4)),
        Case(aten.cumulative_trapezoid.x, f32(3, 4), f32(4), dynamic=False),
    ]
)
def test_cumulative(case: Case) -> None:
    check(case)
