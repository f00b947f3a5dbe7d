"""Decompositions of embedding bags against torch."""

import pytest
import torch
import torch.nn.functional as F

from fx_onnx.decompositions.embedding import embedding_bag, embedding_renorm


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("last", [False, True])
def test_embedding_bag(mode: str, padding: int | None, last: bool) -> None:
    weight, indices = torch.randn(5, 3), torch.tensor([0, 2, 4, 2, 1, 1])
    offsets = torch.tensor([0, 2, 2, 3, 6] if last else [0, 2, 2, 3])
    want = F.embedding_bag(indices, weight, offsets, mode=mode, padding_idx=padding, include_last_offset=last)
    kind = ["sum", "mean", "max"].index(mode)
    found = embedding_bag(weight, indices, offsets, False, kind, False, None, last, -1 if padding is None else padding)
    torch.testing.assert_close(found[0], want)
    if mode == "max" and not last:
        options = (False, kind, False, None, last, -1 if padding is None else padding)
        torch.testing.assert_close(found[3], torch.ops.aten._embedding_bag(weight, indices, offsets, *options)[3])


def test_per_sample_weights() -> None:
    weight, indices, offsets = torch.randn(5, 3), torch.tensor([0, 2, 4, 2]), torch.tensor([0, 3])
    scale = torch.rand(4)
    want = F.embedding_bag(indices, weight, offsets, mode="sum", per_sample_weights=scale)
    torch.testing.assert_close(embedding_bag(weight, indices, offsets, per_sample_weights=scale)[0], want)


def test_renorm() -> None:
    weight, indices = torch.randn(5, 3), torch.tensor([[0, 2], [2, 4]])
    want = torch.ops.aten.embedding_renorm(weight, indices, 0.7, 2.0)
    torch.testing.assert_close(embedding_renorm(weight, indices, 0.7, 2.0), want)
