"""Decompositions of distances against torch."""

import math

import pytest
import torch

from fx_onnx.decompositions.distance import _upper_pairs
from tests.decompositions.harness import assert_matches_torch, randn

aten = torch.ops.aten


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.5, math.inf])
@pytest.mark.parametrize("mode", [None, 1, 2])
@pytest.mark.parametrize(
    ("a", "b"), [((4, 3), (5, 3)), ((2, 4, 3), (5, 3)), ((30, 3), (5, 3)), ((0, 3), (5, 3)), ((4, 0), (5, 0))]
)
def test_cdist(a: tuple[int, ...], b: tuple[int, ...], p: float, mode: int | None) -> None:
    assert_matches_torch(aten.cdist.default, randn(*a), randn(*b, seed=1), p, mode)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.5, math.inf])
def test_pdist(p: float) -> None:
    for shape in ((1, 5), (2, 3), (5, 4)):
        assert_matches_torch(aten.pdist.default, randn(*shape), p)


def test_other_distances() -> None:
    x, y = randn(4, 5), randn(4, 5, seed=1)
    assert_matches_torch(aten.pairwise_distance.default, x, y, 1.5, 1e-3, True)
    assert_matches_torch(aten.cosine_similarity.default, x, y, -1)
    assert_matches_torch(aten.cosine_similarity.default, torch.zeros(2, 3), torch.zeros(2, 3))
    assert_matches_torch(aten.cosine_similarity.default, randn(4, 1, 3), randn(2, 3, seed=1), 1)
    assert_matches_torch(aten.cosine_similarity.default, randn(4, 3), randn(1, 3, seed=1), 0)
    assert_matches_torch(aten.cosine_similarity.default, randn(), randn(), 0)
    assert_matches_torch(aten.dist.default, x, y, 3)
    assert_matches_torch(aten.linalg_vecdot.default, x, y, dim=0)
    assert_matches_torch(aten.trace.default, x)
    assert_matches_torch(aten.renorm.default, x, 2, 1, 1.0)
    assert [list(axis) for axis in _upper_pairs(3, x.device)] == [[0, 0, 1], [1, 2, 2]]
