"""ATen arithmetic."""

import torch

from tests.harness import Case, b8, cases, check, f32, i64

aten = torch.ops.aten


@cases(
    [
        Case(aten.add.Tensor, f32(2, 3), f32(3), emits=["Add"]),
        Case(aten.add.Tensor, i64(2, 3), f32(2, 3), emits=["Cast", "Add"]),
        Case(aten.add.Tensor, b8(2, 3), b8(2, 3), emits=["Or"]),
        Case(aten.add.Tensor, f32(2, 3), f32(2, 3), alpha=2, emits=["Mul", "Add"]),
        Case(aten.mul.Tensor, i64(2, 3), 2.5, emits=["Cast", "Mul"]),
    ]
)
def test_arithmetic(case: Case) -> None:
    check(case)
