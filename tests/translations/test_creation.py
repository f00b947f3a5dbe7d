"""Tensors filled with one number."""

from collections.abc import Callable

import pytest
import torch
from torch.export import Dim

from tests.compare import assert_close
from tests.exporting import exported
from tests.harness import Case, b8, cases, check, f16, f32, i64, with_input

aten = torch.ops.aten


def zeros_of_size(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(x.shape[0], 3, x.shape[1]), x.new_ones(x.shape[1]), torch.full((x.shape[0],), x.shape[1])


def causal(x: torch.Tensor) -> torch.Tensor:
    return torch.full((x.shape[0], x.shape[0]), float("-inf")).triu(1)


def large(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.zeros(40, 50) + x, torch.ones(2000, dtype=torch.int64), torch.full((2000,), 0.5, dtype=torch.bfloat16)


@cases(
    [
        Case(aten.full_like.default, f32(2, 3), 2.5),
        Case(aten.full_like.default, i64(2, 3), -1),
        Case(aten.full_like.default, f32(2, 3), True, dtype=torch.bool),
        Case(aten.zeros_like.default, f16(2, 3)),
        Case(aten.zeros_like.default, b8(2, 3)),
        Case(aten.ones_like.default, f32(2, 3), dtype=torch.int32),
        Case(aten.ones_like.default, f32(), dtype=torch.float64),
        Case(aten.new_full.default, f32(3), [2, 2], 7),
        Case(aten.new_zeros.default, f32(3), [0, 2]),
        Case(aten.new_ones.default, f32(3), [2], dtype=torch.bool),
        Case(aten.fill.Scalar, i64(2, 3), 7),
        Case(aten.fill.Tensor, f32(2, 3), i64()),
        Case(aten.zero.default, f32(2, 3)),
        Case(aten.copy.default, f32(2, 3), i64(3)),
        Case(aten.copy.default, f32(2, 3), f32(2, 3), emits=["Identity"]),
        Case(zeros_of_size, f32(2, 4)),
        Case(causal, f32(4)),
        Case(large, f32()),
        Case(with_input(torch.scalar_tensor, 2.5, dtype=torch.float16), f32(2)),
        Case(with_input(torch.full, (2, 3), 7), f32(2)),
        Case(with_input(torch.full, (), float("nan")), f32(2)),
    ]
)
def test_creation(case: Case) -> None:
    check(case)


def write_above_the_diagonal(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.diagonal(1).fill_(2)
    return y


def write_to_a_column(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[1:, ::2].t()[0] = 7
    return y


def ones_above_the_diagonal(x: torch.Tensor) -> torch.Tensor:
    return torch.diagonal_scatter(x, torch.ones_like(x.diagonal(1)), 1)


@pytest.mark.parametrize("opset", [13, 18, 23])
@pytest.mark.parametrize("function", [write_above_the_diagonal, write_to_a_column, ones_above_the_diagonal])
def test_a_filled_part_of_an_empty_tensor(function: Callable[..., torch.Tensor], opset: int) -> None:
    shapes = ({0: Dim.AUTO, 1: Dim.AUTO},)
    program = exported(function, torch.rand(4, 3), dynamic_shapes=shapes, opset_version=opset)
    for shape in ((4, 3), (1, 2), (0, 3)):
        x = torch.rand(shape)
        assert_close(program(x), function(x))
