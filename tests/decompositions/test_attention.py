"""Decompositions of attention against torch."""

import math

import pytest
import torch
from torch import Tensor

from tests.decompositions.harness import assert_matches_torch, randn

aten = torch.ops.aten
q, k, v = randn(2, 4, 5, 8), randn(2, 4, 3, 8, seed=1), randn(2, 4, 3, 6, seed=2)
keep = torch.tensor([[True, False, True], [False, False, False], [True, True, True], [False] * 3, [False, True, False]])
bias = torch.where(keep, 0.5, -math.inf)


@pytest.mark.parametrize("mask", [None, keep, bias, keep.expand(2, 1, 5, 3), bias.expand(2, 4, 5, 3)])
@pytest.mark.parametrize("scale", [None, 0.3, 1.0])
def test_attention(mask: Tensor | None, scale: float | None) -> None:
    assert_matches_torch(aten.scaled_dot_product_attention.default, q, k, v, mask, scale=scale)


@pytest.mark.parametrize("mask", [None, keep, keep.expand(2, 4, 5, 3), bias.expand(2, 1, 5, 3)])
def test_grouped_heads(mask: Tensor | None) -> None:
    assert_matches_torch(aten.scaled_dot_product_attention.default, q, k[:, :2], v[:, :2], mask, enable_gqa=True)


def test_grouped_heads_differ_between_keys_and_values() -> None:
    """The values have one head, the keys two; a batch of keys meets queries without a batch."""
    assert_matches_torch(aten.scaled_dot_product_attention.default, q, k[:, :2], v[:, :1], enable_gqa=True)
    assert_matches_torch(aten.scaled_dot_product_attention.default, q[:1], k[:, :2], v[:, :2], enable_gqa=True)


def test_causal() -> None:
    assert_matches_torch(aten.scaled_dot_product_attention.default, q, k, v, is_causal=True)
    assert_matches_torch(aten.scaled_dot_product_attention.default, k, q, q, is_causal=True)
    assert_matches_torch(aten.scaled_dot_product_attention.default, q[0, 0], k[0, 0], v[0, 0], is_causal=True)


def test_nan_propagates() -> None:
    assert_matches_torch(aten.scaled_dot_product_attention.default, q * math.nan, k, v, keep[[0, 2, 4, 0, 2]])
    assert_matches_torch(aten.scaled_dot_product_attention.default, q, k, v, torch.where(keep, math.nan, -math.inf))


def test_flash_attention() -> None:
    for causal in (False, True):
        assert_matches_torch(
            aten._scaled_dot_product_flash_attention_for_cpu.default,
            q,
            k,
            v[..., [0, 1, 2, 3, 4, 5, 0, 1]],
            0.0,
            causal,
        )
