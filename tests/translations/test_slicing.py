"""Slices and writes of slices."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import fx_onnx
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


SLICES: dict[str, Callable[[int], slice]] = {
    "3:-3": lambda n: slice(3, -3),
    "-5:3": lambda n: slice(-5, 3),
    "-7:-2": lambda n: slice(-7, -2),
    "5:2": lambda n: slice(5, 2),
    "n // 2:4": lambda n: slice(n // 2, 4),
    "1:n // 2": lambda n: slice(1, n // 2),
    "n - 6:n // 2:2": lambda n: slice(n - 6, n // 2, 2),
    "4:n // 2": lambda n: slice(4, n // 2),
    "n - 4:6": lambda n: slice(n - 4, 6),
    "n - 6:n - 3": lambda n: slice(n - 6, n - 3),
    "-5::2": lambda n: slice(-5, None, 2),
    "-6:6:3": lambda n: slice(-6, 6, 3),
    "-9:-1:2": lambda n: slice(-9, -1, 2),
    "5:-5:2": lambda n: slice(5, -5, 2),
}


class Writes(nn.Module):
    def __init__(self, part: Callable[[int], slice], axis: int) -> None:
        super().__init__()
        self.part, self.axis = part, axis

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x.movedim(self.axis, 0)[self.part(x.shape[0])] *= 2
        return x


@pytest.mark.parametrize("offset", [2, 4])
def test_a_write_of_a_row_that_may_count_from_the_end(offset: int) -> None:
    class Row(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.clone()
            x[x.shape[0] - offset] = 0
            return x

    program = fx_onnx.export(Row().eval(), (torch.randn(8, 4),), dynamic_shapes=({0: "n"},), verbose=False)
    for size in range((offset + 1) // 2, 9):
        x = torch.randn(size, 4)
        torch.testing.assert_close(program(x)[0], Row()(x), rtol=0, atol=0)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("part", SLICES.values(), ids=SLICES)
def test_a_write_is_right_where_the_slice_is_empty(part: Any, axis: int) -> None:
    """The slice is empty for some sizes, where it starts after its end or before the axis."""
    model = Writes(part, axis).eval()
    program = fx_onnx.export(model, (torch.randn(8, 4),), dynamic_shapes=({0: "n"},), verbose=False)
    for size in range(1, 13):
        x = torch.randn(size, 4)
        torch.testing.assert_close(program(x)[0], model(x), rtol=0, atol=0)


@pytest.mark.parametrize("part", [slice(None, 1), slice(-1, None), slice(None, 2)], ids=str)
def test_a_write_of_the_first_rows_of_an_empty_axis_writes_none(part: slice) -> None:
    class Rows(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.clone()
            x[part] = 5.0
            return x

    program = fx_onnx.export(Rows().eval(), (torch.randn(3, 4),), dynamic_shapes=({0: "n"},), verbose=False)
    for size in (0, 1, 2, 5):
        x = torch.randn(size, 4)
        torch.testing.assert_close(program(x)[0], Rows()(x), rtol=0, atol=0)
