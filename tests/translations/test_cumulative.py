"""Cumulative sums, products, extremes and log-sum-exp."""

from collections.abc import Callable

import pytest
import torch

import fx_onnx
from tests.capture.sample_modules import Function
from tests.compare import assert_close
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
        Case(aten.cumprod.default, f32(3, 4), 1, emits=["Expand", "Transpose", "Scan", "Transpose"], opsets=[20]),
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


@pytest.mark.parametrize("opset", [11, 20])
@pytest.mark.parametrize(
    "function", [lambda x: x.cumprod(0), lambda x: x.cummax(1), lambda x: torch.vander(x[0], x.shape[1])]
)
def test_an_axis_that_is_empty_at_another_size(function: Callable[..., object], opset: int) -> None:
    """ONNX Runtime fails, or ends the process, at a Scan without a slice."""
    shapes = ({0: "rows", 1: "columns"},)
    program = fx_onnx.export(
        Function(function).eval(), (torch.rand(3, 4),), dynamic_shapes=shapes, opset_version=opset, verbose=False
    )
    for shape in ((3, 4), (1, 0), (2, 1)):
        x = torch.rand(shape)
        assert_close(program(x), function(x))
