"""Masks."""

import torch

from tests.harness import Case, b8, cases, check, f16, f32, i64, u8

aten = torch.ops.aten


@cases(
    [
        Case(aten.masked_fill.Scalar, f32(2, 3), b8(2, 3), float("-inf"), emits=["Where"]),
        Case(aten.masked_fill.Scalar, f16(2, 3), b8(3), -1e4, emits=["Where"]),
        Case(aten.masked_fill.Scalar, i64(3), b8(2, 1), 7),
        Case(aten.masked_fill.Scalar, f32(), b8(), 1),
        Case(aten.masked_fill.Tensor, f32(2, 3), b8(2, 3), f32(), emits=["Where"]),
        Case(aten.masked_fill.Tensor, f32(2, 3), b8(2, 3), i64(), emits=["Cast", "Where"]),
        Case(aten.masked_select.default, f32(2, 3), b8(2, 3)),
        Case(aten.masked_select.default, f32(2, 3), b8(3)),
        Case(aten.masked_select.default, f32(3), b8(2, 1)),
        Case(aten.masked_select.default, f32(), b8()),
        Case(aten.masked_scatter.default, f32(2, 3), b8(2, 3), f32(8)),
        Case(aten.masked_scatter.default, f32(2, 3), b8(3), f32(2, 3)),
        Case(aten.masked_scatter.default, i64(3), b8(3, values=(False,)), i64(0)),
        Case(aten.nonzero.default, f32(2, 3, values=(0.0, 1.0, -0.0, float("nan"))), emits=["NonZero", "Transpose"]),
        Case(aten.nonzero.default, b8(4)),
        Case(aten.nonzero.default, i64(0, 2)),
        Case(aten.nonzero.default, f32(values=(1.0,))),
        Case(aten.nonzero.default, f32(values=(0.0,))),
        Case(aten.argwhere.default, u8(2, 3, low=0, high=1)),
        Case(aten.nonzero_numpy.default, i64(2, 3, low=0, high=1)),
        Case(aten.where.default, b8(2, 3)),
        Case(aten.nonzero_static.default, b8(6, values=(True, False)), size=5),
        Case(aten.nonzero_static.default, b8(2, 3), size=1),
    ]
)
def test_masking(case: Case) -> None:
    check(case)
