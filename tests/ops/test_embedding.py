"""ATen embeddings."""

import torch

from tests.harness import Case, cases, check, f32, i32, i64

aten = torch.ops.aten


@cases(
    [
        Case(aten.embedding.default, f32(5, 4), i64(2, 3, low=0, high=4), emits=["Gather"]),
        Case(aten.embedding.default, f32(5, 4), i32(3, low=0, high=4), 0, emits=["Gather"]),
        Case(aten.one_hot.default, i64(2, 3, low=0, high=4), 6, emits=["OneHot"]),
        Case(aten.one_hot.default, i64(low=0, high=4), 5, emits=["Unsqueeze", "OneHot", "Squeeze"]),
    ]
)
def test_embedding(case: Case) -> None:
    check(case)
