"""Counts of integers."""

import torch

from tests.harness import Case, cases, check, f32, i32, i64

aten = torch.ops.aten


@cases(
    [
        Case(aten.bincount.default, i64(7, low=0, high=4)),
        Case(aten.bincount.default, i32(7, low=0, high=4), f32(7), dynamic=False),
        Case(aten.bincount.default, i64(7, low=0, high=4), None, 9),
        Case(aten.bincount.default, i64(0), None, 3),
        Case(aten.histc.default, f32(9), 5, -1, 1),
        Case(aten.histogram.bin_ct, f32(9), 5, dynamic=False),
        Case(aten.histogram.bin_ct, f32(9), 5, range=[-1.0, 1.0], density=True, dynamic=False),
        Case(torch.histogramdd, f32(10, 2), [3, 4], dynamic=False),
        Case(aten.histogram.bins_tensor, f32(9), f32(4, values=(-1.0, 0.0, 0.5, 2.0), fixed=True), dynamic=False),
    ]
)
def test_counts(case: Case) -> None:
    check(case)
