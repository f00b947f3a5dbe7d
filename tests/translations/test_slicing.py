"""Slices and writes of slices."""

import torch

from tests.harness import Case, b8, cases, check, f16, f32, i64

aten = torch.ops.aten
LAST = 2**63 - 1


def drop_last(x: torch.Tensor) -> torch.Tensor:
    return x[..., : x.shape[-1] - 1]


def halves(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def put_rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[:, : y.shape[1]] = y
    return x


@cases(
    [
        Case(aten.slice.Tensor, f32(4, 5), 0, 1, 3, emits=["Slice"]),
        Case(aten.slice.Tensor, f32(4, 5), 0, 0, LAST, emits=["Identity"]),
        Case(aten.slice.Tensor, f32(4, 5), 0, None, None, emits=["Identity"]),
        Case(aten.slice.Tensor, f32(4, 5), 1, None, -1, emits=["Slice"]),
        Case(aten.slice.Tensor, f32(4, 5), -1, -2, LAST, emits=["Slice"]),
        Case(aten.slice.Tensor, f32(4, 5), 1, -9, 9, dynamic=False, emits=["Identity"]),
        Case(aten.slice.Tensor, f32(4, 5), 1, 3, 1, dynamic=False),
        Case(aten.slice.Tensor, b8(4, 5), 0, 0, LAST, 2, emits=["Slice"]),
        Case(aten.slice.Tensor, f16(4, 7), 1, 1, LAST, 3, emits=["Slice"]),
        Case(drop_last, f32(3, 4)),
        Case(halves, f32(3, 4)),
        Case(aten.select.int, f32(4, 5), 0, 1, emits=["Gather"]),
        Case(aten.select.int, f32(4, 5), -1, -1, emits=["Gather"]),
        Case(aten.select.int, b8(4), 0, 2, emits=["Gather"]),
        Case(aten.narrow.default, f32(4, 5), 0, 1, 2, emits=["Slice"]),
        Case(aten.narrow.default, f32(4, 5), 1, -3, 3, dynamic=False, emits=["Slice"]),
    ]
)
def test_parts(case: Case) -> None:
    check(case)


@cases(
    [
        Case(
            aten.slice_scatter.default,
            f32(4, 5),
            f32(2, 5, fixed=True),
            0,
            1,
            3,
            dynamic=False,
            emits=["Slice", "Slice", "Concat"],
        ),
        Case(aten.slice_scatter.default, f32(4, 5), f32(4, 5), emits=["Identity"]),
        Case(aten.slice_scatter.default, f32(4, 5), f32(4, 2), 1, 0, 2, dynamic=False, emits=["Slice", "Concat"]),
        Case(aten.slice_scatter.default, f32(4, 5), f32(4, 2), 1, -2, dynamic=False, emits=["Slice", "Concat"]),
        Case(aten.slice_scatter.default, f32(4, 5), f32(4, 3), 1, 0, LAST, 2, dynamic=False),
        Case(
            aten.slice_scatter.default,
            f32(5, 2),
            f32(2, 2),
            0,
            -4,
            LAST,
            2,
            dynamic=False,
            emits=["Unsqueeze", "ScatterND"],
        ),
        Case(aten.slice_scatter.default, f32(4, 5), f32(4, 0), 1, 3, 1, dynamic=False, emits=["Identity"]),
        Case(put_rows, f32(4, 5), f32(4, 3)),
        Case(aten.select_scatter.default, f32(4, 5), f32(5), 0, 1, emits=["Unsqueeze", "Slice", "Slice", "Concat"]),
        Case(aten.select_scatter.default, f32(4, 5), f32(4), 1, -1, emits=["Unsqueeze", "Slice", "Concat"]),
        Case(aten.select_scatter.default, f32(4, 5), f32(4), 1, -2),
        Case(aten.select_scatter.default, i64(4, 5), i64(4), -1, 0, emits=["Unsqueeze", "Slice", "Concat"]),
        Case(aten.select_scatter.default, f32(3), f32(), 0, 1),
        Case(aten.diagonal_scatter.default, f32(4, 5), f32(4), dynamic=False),
        Case(aten.diagonal_scatter.default, f32(2, 4, 5), f32(2, 3), 2, 1, 2, dynamic=False),
        Case(aten.diagonal_scatter.default, f32(4, 5), f32(3), -1, dynamic=False),
    ]
)
def test_writes_of_parts(case: Case) -> None:
    check(case)
