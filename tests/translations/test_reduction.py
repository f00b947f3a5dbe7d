"""Reductions: sums, extremes, any, all, moments and norms."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from onnx.reference import ReferenceEvaluator

import fx_onnx
from tests.compare import assert_close
from tests.harness import Case, b8, cases, check, f16, f32, f64, i8, i16, i32, i64, u8

aten = torch.ops.aten
NAN = (1.0, float("nan"), -2.0, 0.5, 3.0, -0.0)


@cases(
    [
        Case(aten.sum.default, f32(2, 3), emits=["ReduceSum"]),
        Case(aten.sum.default, f32()),
        Case(aten.sum.default, f32(0)),
        Case(aten.sum.default, i32(2, 3), emits=["Cast", "ReduceSum"]),
        Case(aten.sum.default, b8(2, 3), emits=["Cast", "ReduceSum"]),
        Case(aten.sum.default, f32(2, 3), dtype=torch.float64),
        Case(aten.sum.default, u8(2, 3), dtype=torch.uint8),
        Case(aten.sum.dim_IntList, f32(2, 3, 4), [1], emits=["ReduceSum"]),
        Case(aten.sum.dim_IntList, f32(2, 3, 4), [-1, 0], True),
        Case(aten.sum.dim_IntList, f32(2, 3), []),
        Case(aten.sum.dim_IntList, f32(2, 3), None, True),
        Case(aten.sum.dim_IntList, f32(), [0]),
        Case(aten.sum.dim_IntList, f32(), [-1], True),
        Case(aten.sum.dim_IntList, f32(2, 0), [1]),
        Case(aten.sum.dim_IntList, f32(0, 2), [1]),
        Case(aten.mean.default, f32(2, 3), emits=["ReduceMean"]),
        Case(aten.mean.default, f32(0)),
        Case(aten.mean.default, i64(2, 3), dtype=torch.float32),
        Case(aten.mean.dim, f32(2, 3, 4), [-1], True, emits=["ReduceMean"]),
        Case(aten.mean.dim, f32(2, 3, 4), None),
        Case(aten.mean.dim, f32(2, 0), [1]),
        Case(aten.mean.dim, f16(2, 3), [1]),
        Case(aten.mean.dim, f64(2, 3), [1]),
        Case(aten.mean.dim, f32(), [-1]),
        Case(aten.prod.default, f32(2, 3), emits=["ReduceProd"]),
        Case(aten.prod.default, i32(2, 3)),
        Case(aten.prod.dim_int, f32(2, 3), -1, True),
        Case(aten.prod.dim_int, f32(2, 0), 1),
        Case(aten.prod.dim_int, f32(), 0),
    ]
)
def test_sums(case: Case) -> None:
    check(case)


LARGE = (2**31 - 1, 2**30 + 5, 3, -7)


@cases(
    [
        Case(call, i32(4, 3, values=LARGE), *args, opsets=[13, 18, 23], dtype=dtype)
        for dtype in (torch.int8, torch.int16, torch.int32, torch.uint8)
        for call, args in [
            (aten.sum.default, ()),
            (aten.sum.dim_IntList, ([0],)),
            (aten.prod.default, ()),
            (aten.prod.dim_int, (-1, True)),
        ]
    ]
)
def test_small_integers_wrap_around(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.amax.default, f32(2, 3), [1], emits=["ReduceMax"]),
        Case(aten.amax.default, f32(2, 3), emits=["ReduceMax"]),
        Case(aten.amax.default, f32(2, 3), [0, -1], True),
        Case(aten.amax.default, f32()),
        Case(aten.amax.default, b8(2, 3), [1], opsets=[18, 20]),
        Case(aten.amax.default, i16(2, 3), [1]),
        Case(aten.amin.default, i8(2, 3), [1]),
        Case(aten.amin.default, f32(0, 3), [1]),
        Case(aten.max.default, f32(2, 3), emits=["ReduceMax"]),
        Case(aten.max.default, i64(2, 3)),
        Case(aten.min.default, f16(2, 3)),
        Case(aten.max.dim, f32(2, 3), 1, emits=["ReduceMax", "ArgMax"]),
        Case(aten.max.dim, i64(2, 3, 4), -2, True),
        Case(aten.max.dim, b8(2, 3), 1),
        Case(aten.max.dim, f32(), 0),
        Case(aten.max.dim, f32(0, 3), 1),
        Case(aten.min.dim, f32(2, 3), 1, emits=["ReduceMin", "ArgMin"]),
        Case(aten.aminmax.default, f32(2, 3), dim=1, emits=["ReduceMin", "ReduceMax"]),
        Case(aten.aminmax.default, i32(2, 3)),
        Case(aten.argmax.default, f32(2, 3), emits=["Reshape", "ArgMax"]),
        Case(aten.argmax.default, f32(2, 3), 1, emits=["ArgMax"]),
        Case(aten.argmax.default, f32(2, 3), -2, True),
        Case(aten.argmax.default, f32(2, 3), None, True),
        Case(aten.argmax.default, f32()),
        Case(aten.argmax.default, f32(), 0),
        Case(aten.argmax.default, f32(0, 3), 1),
        Case(aten.argmax.default, i64(2, 6, values=(1, 5, 5, 2)), 1),
        Case(aten.argmin.default, u8(2, 3), 0),
        Case(aten.argmin.default, f32(4)),
    ]
)
def test_extremes(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.any.default, b8(2, 3), emits=["ReduceMax"]),
        Case(aten.any.default, b8(2, 3), opsets=[18], emits=["Cast", "ReduceMax", "Cast"]),
        Case(aten.any.default, f32(2, 3)),
        Case(aten.any.default, u8(2, 3)),
        Case(aten.any.default, b8(0)),
        Case(aten.any.default, f32(2, values=(0.0, float("nan")))),
        Case(aten.any.dim, b8(2, 3), 1, True),
        Case(aten.any.dims, b8(2, 3, 4), [0, -1]),
        Case(aten.any.dims, b8(2, 3), []),
        Case(aten.any.dims, b8(2, 3)),
        Case(aten.all.default, b8(2, 3), emits=["ReduceMin"]),
        Case(aten.all.default, b8()),
        Case(aten.all.default, b8(0)),
        Case(aten._is_all_true.default, b8(2, 3), emits=["ReduceMin"]),
        Case(aten._is_any_true.default, b8(2, 3), emits=["ReduceMax"]),
        Case(aten._is_all_true.default, b8(0)),
        Case(aten.all.dim, b8(2, 0), 1),
        Case(aten.all.dim, i64(2, 3), -1),
        Case(aten.all.dims, b8(2, 3, 4), [0, -1], True),
        Case(aten.count_nonzero.default, f32(2, 3)),
        Case(aten.count_nonzero.dim_IntList, i64(2, 3), [1]),
        Case(aten.count_nonzero.default, b8(2, 3), 0),
    ]
)
def test_logical(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.var.correction, f32(2, 5), [1], emits=["ReduceMean", "Sub", "Mul", "ReduceSum", "Div"]),
        Case(aten.var.correction, f32(2, 5), [1], correction=0, emits=["ReduceMean", "Sub", "Mul", "ReduceMean"]),
        Case(aten.var.correction, f32(2, 5), correction=2, keepdim=True),
        Case(aten.var.correction, f32(1)),
        Case(aten.var.correction, f32(2, 3, 4), [-1, 0]),
        Case(torch.var, f32(2, 5), unbiased=False),
        Case(torch.std, f32(2, 5), -1, keepdim=True),
        Case(torch.std, f16(2, 5)),
        Case(torch.std_mean, f32(2, 5), 1),
        Case(torch.var_mean, f64(2, 5)),
        Case(aten.var.correction, f32()),
        Case(aten.logsumexp.default, f32(2, 3), [1], emits=["ReduceLogSumExp"]),
        Case(aten.logsumexp.default, f32(2, 3, high=300.0), [0, 1], True),
        Case(aten.logsumexp.default, f32(2, 3, values=(-math.inf,)), [1]),
        Case(aten.logsumexp.default, f32(2, 2, values=(math.inf, -math.inf)), [1]),
        Case(aten.logsumexp.default, i64(2, 3), [1]),
        Case(aten.nansum.default, f32(2, 3, values=NAN), [1]),
        Case(aten.nansum.default, i64(2, 3)),
        Case(torch.nanmean, f32(2, 3, values=NAN), 1),
    ]
)
def test_moments(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.linalg_vector_norm.default, f32(2, 3), emits=["ReduceL2"]),
        Case(aten.linalg_vector_norm.default, f32(2, 3), 1, [1], emits=["ReduceL1"]),
        Case(aten.linalg_vector_norm.default, f32(2, 3), math.inf, [1], True, emits=["Abs", "ReduceMax"]),
        Case(aten.linalg_vector_norm.default, f32(2, 3), -math.inf),
        Case(aten.linalg_vector_norm.default, f32(2, 3, values=(0.0, 1.0, 2.0)), 0, [-1]),
        Case(aten.linalg_vector_norm.default, f32(2, 3), 2.5, [0]),
        Case(aten.linalg_vector_norm.default, f32(2, 3, low=0.5), -1.5),
        Case(aten.linalg_vector_norm.default, f16(2, 3), dtype=torch.float32),
        Case(aten.linalg_vector_norm.default, f32()),
        Case(aten.linalg_vector_norm.default, f32(0)),
        Case(torch.norm, f32(2, 3)),
        Case(torch.norm, f32(2, 3), 1, 1),
        Case(torch.norm, f32(2, 3), "fro", dim=(0, 1)),
        Case(torch.linalg.matrix_norm, f32(2, 3, 4), "fro"),
        Case(torch.linalg.matrix_norm, f32(2, 3, 4), 1),
        Case(torch.linalg.norm, f32(2, 3), math.inf),
    ]
)
def test_norms(case: Case) -> None:
    check(case)


class Function(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


@pytest.mark.parametrize("function", [lambda x: x.amax(1), lambda x: x.amin(0), lambda x: x.argmax(1)])
def test_nan_is_the_extreme_in_the_reference_evaluator(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """ONNX Runtime ignores some NaN: see docs/differences.md."""
    x = torch.arange(12.0).reshape(3, 4)
    x[0, 0] = x[1, 2] = x[2, 3] = math.nan
    program = fx_onnx.export(Function(function), (torch.zeros(3, 4),), verbose=False)
    (found,) = ReferenceEvaluator(program.model_proto).run(None, {"x": x.numpy()})
    assert_close(torch.from_numpy(found), function(x))


@pytest.mark.parametrize("opset", [9, 17, 20])
@pytest.mark.parametrize("function", [torch.any, torch.all])
def test_any_and_all_over_a_dynamic_axis_without_elements(
    function: Callable[[torch.Tensor], torch.Tensor], opset: int
) -> None:
    model = Function(lambda x: (function(x), function(x, 0), function(x, 1)))
    program = fx_onnx.export(model, (torch.ones(3, 4) > 0,), dynamic_shapes=({0: "n"},), opset_version=opset)
    for x in (torch.ones(0, 4) > 0, torch.eye(4) > 0):
        assert_close(program(x), model(x))


def test_the_mean_over_a_size_from_data_is_nan_without_elements() -> None:
    model = Function(lambda x: x[x > 0].mean())
    program = fx_onnx.export(model, (torch.randn(5),))
    for x in (-torch.ones(5), torch.randn(5)):
        assert_close(program(x), (model(x),))
