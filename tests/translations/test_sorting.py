"""Sorting, order statistics, distinct elements and searches."""

import pytest
import torch
from torch.export import Dim

from tests.compare import assert_close
from tests.exporting import exported
from tests.harness import Case, b8, cases, check, f32, f64, i32, i64, u8
from tests.torch_versions import needs

aten = torch.ops.aten
NAN = float("nan")


def best(x: torch.Tensor) -> torch.Tensor:
    return x.topk(2, -1)[1]


@cases(
    [
        Case(aten.topk.default, f32(3, 5), 2, emits=["TopK"]),
        Case(aten.topk.default, f32(3, 5), 1, 0, False, emits=["TopK"]),
        Case(aten.topk.default, f32(), 1),
        Case(aten.topk.default, f32(), 0),
        Case(best, f32(3, 5)),
        Case(aten.sort.default, f32(3, 5), emits=["TopK"]),
        Case(aten.sort.default, b8(5), 0, True),
        Case(aten.sort.default, f32()),
        Case(aten.sort.default, u8(3, 5, high=200), 0, dynamic=False),
        Case(aten.sort.stable, i64(3, 7), stable=True, dim=1),
        Case(aten.sort.stable, i32(7), stable=True, descending=True),
        Case(aten.argsort.default, f32(3, 5), 0, True, emits=["TopK"]),
        Case(aten.argsort.stable, i64(9), stable=True),
        Case(aten.msort.default, f32(5, 2)),
    ]
)
def test_sorts(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.kthvalue.default, f32(3, 5), 2),
        Case(aten.kthvalue.default, f32(3, 5), 3, 0, True),
        Case(aten.kthvalue.default, f32(), 1),
        Case(aten.median.default, f32(3, 4)),
        Case(aten.median.default, f32(3, values=(1.0, NAN, 2.0))),
        Case(aten.median.dim, f64(3, 5), 1),
        Case(aten.median.dim, f32(2, 3, values=(1.0, NAN, 2.0, 3.0)), -1, True),
        Case(aten.median.default, i64(5)),
        Case(aten.nanmedian.default, f32(3, 4)),
        Case(aten.nanmedian.dim, f32(2, 3, values=(1.0, NAN, 2.0, 3.0)), 1),
        Case(aten.nanmedian.dim, f32(2, 2, values=(NAN,)), 0, dynamic=False),
        Case(aten.mode.default, i64(3, 9)),
        Case(aten.mode.default, f32(4, values=(2.0, 1.0, 2.0, 1.0)), 0, True),
        Case(aten.mode.default, f32()),
    ]
)
def test_order_statistics(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten._unique2.default, i64(3, 4), True, True, True),
        Case(aten._unique2.default, f32(6, values=(2.0, -1.0, 2.0))),
        Case(aten.unique_dim.default, i64(4, 2, high=0), 0, True, True, True),
        Case(aten.unique_consecutive.default, i64(9, low=0, high=1), True, True),
        Case(aten.unique_consecutive.default, i64(3, 3, low=0, high=1), True, True),
        Case(aten.unique_consecutive.default, i64(5, 2, low=0, high=0), True, True, 0),
        Case(aten.unique_consecutive.default, i64(0), True, True),
    ]
)
def test_distinct(case: Case) -> None:
    check(case)


@needs("aten._unique")
def test_distinct_without_counts() -> None:
    check(Case(aten._unique.default, i64(5), True, True))


ORDERED = f32(5, values=(-1.0, 0.0, 0.5, 0.5, 2.0), fixed=True)


@cases(
    [
        Case(aten.searchsorted.Tensor, ORDERED, f32(2, 3), dynamic=False),
        Case(
            aten.searchsorted.Tensor,
            ORDERED,
            f32(3, values=(0.5, NAN, -3.0)),
            right=True,
            out_int32=True,
            dynamic=False,
        ),
        Case(aten.searchsorted.Tensor, f32(2, 3, values=(0.0, 1.0, 2.0)), f32(2, 4), side="right", dynamic=False),
        Case(aten.searchsorted.Scalar, ORDERED, 0.5, dynamic=False),
        Case(aten.bucketize.Tensor, f32(3, 2), ORDERED, right=True, dynamic=False),
        Case(aten.bucketize.Tensor, i64(3), i64(4, values=(-1, 0, 1, 2)), dynamic=False),
        Case(aten.bucketize.Scalar, 0.7, ORDERED, dynamic=False),
    ]
)
def test_searches(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("opset", [13, 18, 23])
def test_the_median_of_no_elements(opset: int) -> None:
    def medians(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.median(), x.nanmedian()

    program = exported(medians, torch.rand(4, 3), dynamic_shapes=({0: Dim.AUTO},), opset_version=opset)
    for rows in (4, 1, 0):
        x = torch.rand(rows, 3)
        assert_close(program(x), medians(x))
