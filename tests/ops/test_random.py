"""ATen random operators."""

import torch
from torch.nn import functional as F

from tests.harness import Case, cases, check, f32

aten = torch.ops.aten


@cases(
    [
        Case(aten.dropout.default, f32(2, 3), 0.5, False, emits=["Identity"]),
        Case(F.dropout, f32(2, 3), 1.0, True),
    ]
)
def test_dropout_of_nothing(case: Case) -> None:
    check(case)
