"""Embeddings and one-hot encodings."""

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


def bags(weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor) -> list[torch.Tensor]:
    return [torch.nn.functional.embedding_bag(indices, weight, offsets, mode=mode) for mode in ("sum", "mean", "max")]


@cases([Case(bags, f32(5, 4), i64(6, low=0, high=4), i64(3, values=(0, 2, 2), fixed=True), dynamic=False)])
def test_bags(case: Case) -> None:
    check(case)
