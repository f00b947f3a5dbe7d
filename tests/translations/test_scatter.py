"""Writes at indices."""

import pytest
import torch

from tests.harness import Case, b8, cases, check, f32, i64

aten = torch.ops.aten
ROWS = i64(2, 4, low=0, high=2)
PLACES = i64(3, values=(2, 0, 1))


@cases(
    [
        Case(
            aten.scatter.src,
            f32(3, 4),
            0,
            i64(2, 4, values=(0, 1, 2, 0, 1, 2, 0, 1)),
            f32(2, 4),
            dynamic=False,
            emits=["ScatterElements"],
        ),
        Case(aten.scatter.src, f32(3, 4), 1, i64(2, 1), f32(3, 4), dynamic=False, emits=["Slice", "ScatterElements"]),
        Case(aten.scatter.value, f32(3, 4), -1, i64(3, 2, low=0, high=1), 2.5),
        Case(aten.scatter.value, b8(3, 4), -1, i64(3, 2, low=0, high=1), True),
        Case(aten.scatter.value, f32(), 0, i64(low=0, high=0), 2.5),
        Case(aten.scatter.src, f32(3), 0, i64(0), f32(3), emits=["Identity"]),
        Case(aten.scatter.reduce, f32(3, 4), 0, ROWS, f32(2, 4), reduce="multiply", dynamic=False),
        Case(aten.scatter.value_reduce, f32(3, 4), 0, ROWS, 2, reduce="add", dynamic=False),
        Case(aten.scatter_add.default, f32(3, 4), 0, ROWS, f32(2, 4), dynamic=False, emits=["ScatterElements"]),
        Case(aten.scatter_add.default, i64(3), 0, i64(3, low=0, high=2), i64(3)),
        Case(aten.scatter_add.default, b8(3), 0, i64(2, low=0, high=2), b8(2), dynamic=False),
    ]
)
def test_scatter(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce(reduce: str, include_self: bool) -> None:
    for make in (f32, i64):
        check(
            Case(
                aten.scatter_reduce.two,
                make(3, 4),
                0,
                ROWS,
                make(2, 4),
                reduce,
                include_self=include_self,
                dynamic=False,
            )
        )
    if reduce != "sum":
        places = i64(5, low=0, high=2)
        check(Case(aten.index_reduce.default, f32(3, 4), 0, places, f32(5, 4), reduce, include_self=include_self))


@cases(
    [
        Case(aten.index_add.default, f32(3, 4), 0, i64(5, low=0, high=2), f32(5, 4), emits=["Unsqueeze", "ScatterND"]),
        Case(aten.index_add.default, f32(3, 4), 1, i64(5, low=0, high=2), f32(3, 5), alpha=2),
        Case(aten.index_add.default, f32(), 0, i64(1, low=0, high=0), f32()),
        Case(aten.index_copy.default, f32(4, 5), 0, PLACES, f32(3, 5)),
        Case(aten.index_copy.default, f32(4, 5), 1, PLACES, f32(4, 3)),
        Case(aten.index_fill.int_Scalar, f32(4, 5), 0, PLACES, 1.5),
        Case(aten.index_fill.int_Scalar, b8(4, 5), 1, PLACES, True),
        Case(aten.index_fill.int_Scalar, f32(), 0, i64(low=0, high=0), 2),
        Case(aten.index_fill.int_Tensor, i64(4, 5), -1, PLACES, i64()),
        Case(aten.put.default, f32(4, 5), PLACES, f32(3), dynamic=False),
        Case(aten.put.default, f32(4, 5), i64(2, 2, low=-20, high=19), f32(4), True, dynamic=False),
        Case(
            aten.segment_reduce.default, f32(6, 3), "sum", lengths=i64(3, values=(2, 0, 4), fixed=True), dynamic=False
        ),
        Case(aten.segment_reduce.default, f32(6, 3), "mean", offsets=i64(4, values=(1, 2, 2, 6)), dynamic=False),
    ]
)
def test_slices(case: Case) -> None:
    check(case)


@cases(
    [
        Case(
            torch.ops.fx_onnx.fill_diagonal.default, f32(3, 4), 1.5, emits=["Unsqueeze", "Unsqueeze", "Equal", "Where"]
        ),
        Case(torch.ops.fx_onnx.fill_diagonal.default, f32(4, 3), 0),
        Case(torch.ops.fx_onnx.fill_diagonal.default, f32(9, 3), 2, True, dynamic=False),
        Case(torch.ops.fx_onnx.fill_diagonal.default, f32(9, 3), 2, False, dynamic=False),
        Case(torch.ops.fx_onnx.fill_diagonal.default, i64(3, 4), -2, True),
        Case(torch.ops.fx_onnx.fill_diagonal.default, b8(3, 3, 3), True),
    ]
)
def test_diagonals(case: Case) -> None:
    check(case)
