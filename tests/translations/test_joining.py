"""Concatenation, splits, repetition, windows, diagonals and triangles."""

from typing import Any

import torch

import fx_onnx
from tests.capture.sample_modules import Function
from tests.compare import assert_close
from tests.harness import Case, b8, cases, check, f16, f32, f64, i64

aten = torch.ops.aten


def sum_of(split: Any, x: torch.Tensor, *args: Any) -> list[torch.Tensor]:
    return [piece + 1 for piece in split(x, *args)]


def chunks(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.chunk(2, -1)


def qkv(x: torch.Tensor) -> torch.Tensor:
    q, k, v = x.reshape(x.shape[0], x.shape[1], 3, 2).unbind(2)
    return q * k + v


def rows_and_rows(x: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Concatenates data-dependent sizes, which must not be specialized."""
    return torch.cat([x[chosen], x, x[~chosen]])


@cases(
    [
        Case(rows_and_rows, f32(4, 3), b8(4)),
        Case(aten.cat.default, [f32(2, 3), f32(4, 3)], emits=["Concat"]),
        Case(aten.cat.default, [f32(2, 3), f32(2, 1)], -1, emits=["Concat"]),
        Case(aten.cat.default, [f32(2, 3), i64(2, 3)], 1, emits=["Cast", "Concat"]),
        Case(aten.cat.default, [f32(0), f32(2, 3)], emits=["Identity"]),
        Case(aten.cat.default, [f32(0), f32(0)]),
        Case(aten.cat.default, [b8(2), b8(3)], emits=["Concat"]),
        Case(aten.concat.default, [f16(2), f64(3)]),
        Case(aten.stack.default, [f32(2, 3), f32(2, 3)], emits=["Unsqueeze", "Unsqueeze", "Concat"]),
        Case(aten.stack.default, [f32(2), i64(2)], -1),
        Case(aten.stack.default, [f32(), f32()]),
        Case(aten.hstack.default, [f32(2, 3), f32(2, 1)]),
        Case(aten.dstack.default, [f32(2, 3), f32(2, 3)]),
        Case(aten.column_stack.default, [f32(2), f32(2, 3)]),
        Case(aten.block_diag.default, [f32(2, 3), f32(1, 2), f32(2)], dynamic=False),
        Case(aten.meshgrid.indexing, [f32(2), f32(3)], indexing="xy"),
        Case(aten.cartesian_prod.default, [f32(2), f32(3)]),
    ]
)
def test_joins(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.split.Tensor, f32(4, 3), 2, dynamic=False, emits=["Split"]),
        Case(aten.split.Tensor, f32(5, 3), 2, dynamic=False, emits=["Split"]),
        Case(aten.split.Tensor, f32(5, 3), 3, 1, emits=["Identity"], dynamic=False),
        Case(aten.split.sizes, f32(2, 6), [1, 2, 3], -1, dynamic=False, emits=["Split"]),
        Case(aten.split_with_sizes.default, f32(2, 3), [0, 3], 1, dynamic=False, emits=["Split"]),
        Case(aten.chunk.default, b8(5, 3), 2, dynamic=False, emits=["Split"]),
        Case(aten.chunk.default, f32(5, 3), 4, dynamic=False, emits=["Split"]),
        Case(chunks, f32(3, 4)),
        Case(aten.tensor_split.sections, f32(5, 3), 3, dynamic=False, emits=["Split"]),
        Case(aten.tensor_split.indices, f32(5, 3), [1, 4], dynamic=False, emits=["Split"]),
        Case(aten.tensor_split.indices, f32(5, 3), [3, 1, 9], dynamic=False, emits=["Slice"] * 4),
        Case(aten.tensor_split.indices, f32(5, 3), [-2], dynamic=False),
        Case(aten.hsplit.int, f32(4, 6), 3, dynamic=False),
        Case(aten.vsplit.array, f32(4, 6), [1, 2], dynamic=False),
        Case(aten.dsplit.int, f32(1, 4, 6), 2, dynamic=False),
        Case(aten.unbind.int, f32(3, 4), dynamic=False, emits=["Gather"] * 3),
        Case(aten.unbind.int, f32(3, 1), -1, dynamic=False, emits=["Squeeze"]),
        Case(qkv, f32(2, 3, 6)),
    ]
)
def test_splits(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.repeat.default, f32(2, 3), [2, 1], emits=["Tile"]),
        Case(aten.repeat.default, f32(3), [2, 1, 2], emits=["Unsqueeze", "Tile"]),
        Case(aten.repeat.default, f32(3), [0]),
        Case(aten.repeat.default, f32(), [2, 2]),
        Case(aten.repeat.default, f32(2, 3), [1, 1], emits=["Identity"]),
        Case(aten.tile.default, f32(2, 3), [2], emits=["Tile"]),
        Case(aten.repeat_interleave.self_int, f32(2, 3), 2, 1),
        Case(aten.repeat_interleave.self_int, f32(2, 3), 2),
        Case(aten.repeat_interleave.self_Tensor, f32(3, 2), i64(3, low=0, high=3), 0),
        Case(aten.repeat_interleave.self_Tensor, f32(2, 3), i64(6, low=1, high=3), dynamic=False),
        Case(aten.repeat_interleave.Tensor, i64(5, values=(0, 2, 0, 3, 0))),
        Case(aten.flip.default, f32(2, 3), [0, -1], emits=["Slice"]),
        Case(aten.flip.default, f32(2, 3), [], emits=["Identity"]),
        Case(aten.flip.default, f32(), [0], emits=["Identity"]),
        Case(aten.fliplr.default, i64(2, 3)),
        Case(aten.rot90.default, f32(2, 3), 1, [0, 1]),
        Case(aten.rot90.default, f32(2, 3), 3, [0, 1]),
        Case(aten.roll.default, f32(4, 5), [1], [0], emits=["Slice", "Slice", "Concat"]),
        Case(aten.roll.default, f32(4, 5), [-1, 2], [0, 1]),
        Case(aten.roll.default, f32(4, 5), [9], [-1]),
        Case(aten.roll.default, f32(4, 5), [5], [1], dynamic=False, emits=["Identity"]),
        Case(aten.roll.default, f32(4, 5), [3]),
        Case(aten.roll.default, f32(), [3]),
        Case(aten.roll.default, f32(0, 2), [1], [0]),
    ]
)
def test_repetitions(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.unfold.default, f32(2, 7), 1, 3, 2, emits=["Gather"], dynamic=False),
        Case(aten.unfold.default, f32(7, 2), 0, 3, 1),
        Case(aten.unfold.default, f32(), 0, 1, 1),
        Case(aten.diagonal.default, f32(4, 5)),
        Case(aten.diagonal.default, f32(2, 4, 5), 1, 1, 2, dynamic=False),
        Case(aten.diagonal.default, f32(4, 5, 2), -2, -2, 0, dynamic=False),
        Case(aten.diagonal.default, f32(4, 5), 7, dynamic=False),
        Case(aten.linalg_diagonal.default, f32(2, 4, 5)),
        Case(aten.diag.default, f32(3), 1),
        Case(aten.diag_embed.default, f32(2, 3)),
        Case(aten.diag_embed.default, f32(2, 3), -1, 0, 2),
        Case(aten.tril.default, f32(3, 4), emits=["Trilu"]),
        Case(aten.triu.default, f32(2, 3, 4), 1, emits=["Trilu"]),
        Case(aten.triu.default, b8(4, 4), -1, emits=["Trilu"]),
        Case(aten.as_strided.default, f32(12), [3, 4], [4, 1], dynamic=False),
        Case(aten.as_strided.default, f32(4, 5), [2, 3], [1, 2], 3, dynamic=False),
        Case(aten.as_strided_scatter.default, f32(4, 5), f32(2, 3), [2, 3], [1, 4], 3, dynamic=False),
    ]
)
def test_windows(case: Case) -> None:
    check(case)


class Regulator(torch.nn.Module):
    def forward(self, x: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, int]:
        repeated = torch.repeat_interleave(x, counts, dim=0)
        return repeated + torch.arange(repeated.shape[0])[:, None], repeated.shape[0]


def test_the_size_of_repeated_elements_is_a_value() -> None:
    program = fx_onnx.export(Regulator(), (torch.randn(4, 2), torch.tensor([1, 2, 0, 1])))
    inputs = torch.randn(4, 2), torch.tensor([3, 0, 2, 1])
    assert_close(program(*inputs), [torch.as_tensor(each) for each in Regulator()(*inputs)])


def test_a_roll_of_what_is_empty_in_the_example() -> None:
    module = Function(lambda x: x[: x.shape[0] // 2].roll(1, 0))
    program = fx_onnx.export(module, (torch.randn(1, 3),), dynamic_shapes=({0: "n"},), verbose=False)
    for rows in (1, 2, 5, 9):
        x = torch.randn(rows, 3)
        assert_close(program(x), module(x))
