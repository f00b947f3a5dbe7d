"""Ranges and index patterns."""

import torch

from tests.harness import Case, cases, check, f32, with_input


def positions(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    size = x.shape[0]
    return (
        torch.arange(size), torch.arange(size, dtype=torch.float32), torch.arange(1, 2 * size, 2),
        torch.arange(size, 0, -1), torch.arange(0, size, 0.3), torch.arange(0.5, size, dtype=torch.float64),
        torch.arange(0, size, dtype=torch.int32), torch.eye(size), torch.eye(size, 3, dtype=torch.int64),
    )  # fmt: skip


@cases(
    [
        Case(positions, f32(4)),
        Case(with_input(torch.arange, 5), f32(2)),
        Case(with_input(torch.arange, 0.0, 1.0, 0.1), f32(2)),
        Case(with_input(torch.arange, 1, 5, 2, dtype=torch.float16), f32(2)),
        Case(with_input(torch.arange, 3000), f32(2)),
        Case(with_input(torch.arange, 0, 3000, 0.7), f32(2)),
        Case(with_input(torch.arange, 0), f32(2)),
        Case(with_input(torch.linspace, 0, 1, 7), f32(2)),
        Case(with_input(torch.linspace, -3, 5, 1, dtype=torch.float64), f32(2)),
        Case(with_input(torch.logspace, 0, 2, 5), f32(2)),
        Case(with_input(torch.eye, 3), f32(2)),
        Case(with_input(torch.eye, 50, 40), f32(2)),
        Case(with_input(torch.tril_indices, 4, 3), f32(2)),
        Case(with_input(torch.triu_indices, 40, 40, 1), f32(2)),
        Case(with_input(torch.triu_indices, 4, 3, -1, dtype=torch.int32), f32(2)),
    ]
)
def test_ranges(case: Case) -> None:
    check(case)
