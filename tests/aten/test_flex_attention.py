"""Lowering of flex_attention: the results equal those of torch's eager implementation, at two lengths."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import fx_onnx
from tests.compare import assert_close

BIAS = torch.tensor([0.5, -0.5, 1.0, 0.0])


class Attention(torch.nn.Module):
    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> object:
        return self.function(query, key, value)


def relative(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return score + (query - key) * 0.1 * (head + 1)


def with_table(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return score + BIAS[head] * batch


def capped(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return 2 * torch.tanh(score / 2)


def causal(query: Tensor, key: Tensor, value: Tensor) -> object:
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, query.shape[2], key.shape[2], device="cpu")
    return flex_attention(query, key, value, block_mask=mask)


def with_masked_rows(query: Tensor, key: Tensor, value: Tensor) -> object:
    mask = create_block_mask(lambda b, h, q, k: q > k, None, None, query.shape[2], key.shape[2], device="cpu")
    return flex_attention(query, key, value, score_mod=relative, block_mask=mask)


def sums(query: Tensor, key: Tensor, value: Tensor) -> object:
    return flex_attention(query, key, value, score_mod=relative, return_lse=True)


@pytest.mark.parametrize(
    ("function", "heads"),
    [
        (flex_attention, 4),
        (lambda q, k, v: flex_attention(q, k, v, score_mod=with_table), 4),
        (lambda q, k, v: flex_attention(q, k, v, score_mod=capped, scale=0.3), 4),
        (lambda q, k, v: flex_attention(q, k, v, score_mod=relative, enable_gqa=True), 2),
        (sums, 4),
        (causal, 4),
        (with_masked_rows, 4),
    ],
    ids=["plain", "table", "capped", "grouped heads", "sums", "causal", "masked rows"],
)
def test_flex_attention(function: Callable[..., object], heads: int) -> None:
    def example(length: int) -> tuple[Tensor, ...]:
        return torch.rand(2, 4, length, 8), torch.rand(2, heads, length, 8), torch.rand(2, heads, length, 8)

    shapes = ({2: "length"},) * 3
    program = fx_onnx.export(Attention(function).eval(), example(16), dynamic_shapes=shapes, verbose=False)
    for length in (16, 24):
        inputs = example(length)
        assert_close(program(*inputs), function(*inputs))
