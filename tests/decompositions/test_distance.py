"""Distances, against torch."""

import math

import pytest
import torch

from fx_onnx.decompositions.distance import _pairs
from tests.decompositions.harness import check, random

aten = torch.ops.aten


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.5, math.inf])
@pytest.mark.parametrize("mode", [None, 1, 2])
@pytest.mark.parametrize(
    ("a", "b"), [((4, 3), (5, 3)), ((2, 4, 3), (5, 3)), ((30, 3), (5, 3)), ((0, 3), (5, 3)), ((4, 0), (5, 0))]
)
def test_cdist(a: tuple[int, ...], b: tuple[int, ...], p: float, mode: int | None) -> None:
    check(aten.cdist.default, random(*a), random(*b, seed=1), p, mode)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.5, math.inf])
def test_pdist(p: float) -> None:
    for shape in ((1, 5), (2, 3), (5, 4)):
        check(aten.pdist.default, random(*shape), p)


def test_others() -> None:
    x, y = random(4, 5), random(4, 5, seed=1)
    check(aten.pairwise_distance.default, x, y, 1.5, 1e-3, True)
    check(aten.cosine_similarity.default, x, y, -1)
    check(aten.cosine_similarity.default, torch.zeros(2, 3), torch.zeros(2, 3))
    check(aten.cosine_similarity.default, random(4, 1, 3), random(2, 3, seed=1), 1)
    check(aten.cosine_similarity.default, random(4, 3), random(1, 3, seed=1), 0)
    check(aten.cosine_similarity.default, random(), random(), 0)
    check(aten.dist.default, x, y, 3)
    check(aten.linalg_vecdot.default, x, y, dim=0)
    check(aten.trace.default, x)
    check(aten.renorm.default, x, 2, 1, 1.0)
    assert [list(axis) for axis in _pairs(3, x.device)] == [[0, 0, 1], [1, 2, 2]]
