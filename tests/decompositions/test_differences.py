"""Differences along axes are those of torch."""

import pytest
import torch

from tests.decompositions.harness import assert_matches_torch, randn

aten = torch.ops.aten
X, PLACES = randn(5, 6, 4), (torch.tensor([0.0, 1, 3, 4, 7, 8]), torch.tensor([-1.0, 0, 2, 2.5]))


@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("x", [X, X.double(), (X * 8).long(), torch.complex(X, X.flip(0))], ids=lambda x: str(x.dtype))
def test_gradients_are_those_of_torch(x: torch.Tensor, edge_order: int) -> None:
    options = {"edge_order": edge_order}
    assert_matches_torch(aten.gradient.scalarint, x, **options)
    assert_matches_torch(aten.gradient.scalarint, x, spacing=0.1, dim=1, **options)
    assert_matches_torch(aten.gradient.scalararray, x, spacing=2.0, dim=[0, -1], **options)
    assert_matches_torch(aten.gradient.array, x, dim=[2], **options)
    assert_matches_torch(aten.gradient.scalarrayint, x, spacing=[0.5], dim=1, **options)
    assert_matches_torch(aten.gradient.scalarrayarray, x, spacing=[0.5, 3], dim=[1, 2], **options)
    assert_matches_torch(aten.gradient.tensorarray, x, spacing=PLACES, dim=[1, -1], **options)
    assert_matches_torch(aten.gradient.tensorarrayint, x, spacing=PLACES[:1], dim=1, **options)


def test_infinities_stay_where_they_are() -> None:
    assert_matches_torch(aten.gradient.scalarint, torch.tensor([1.0, torch.inf, 2, 3, 5, torch.nan, 7, 8]))


def test_integrals() -> None:
    for x in (X, X.half(), (X * 8).long(), X[:1], X[:0]):
        assert_matches_torch(aten.trapezoid.dx, x, dx=0.25, dim=0)
        assert_matches_torch(aten.trapezoid.dx, x)
