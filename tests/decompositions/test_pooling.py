"""Decompositions of pooling against torch."""

import pytest
import torch

from tests.decompositions.harness import assert_matches_torch

aten = torch.ops.aten
SIZES = [(1, 1, 1), (2, 3, 4), (5, 6, 7), (3, 1, 5), (9, 4, 8)]


@pytest.mark.parametrize("out", SIZES)
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("batched", [True, False])
def test_adaptive(out: tuple[int, ...], axes: int, batched: bool) -> None:
    x = torch.randn(2, 3, *(5, 6, 7)[:axes])
    x = x if batched else x[0]
    assert_matches_torch(getattr(aten, f"adaptive_avg_pool{axes}d").default, x, list(out[:axes]), tolerance=1e-6)
    assert_matches_torch(getattr(aten, f"adaptive_max_pool{axes}d").default, x, list(out[:axes]), tolerance=0.0)


def test_adaptive_with_nan_and_ties() -> None:
    x = torch.zeros(1, 1, 7, 5)
    x[0, 0, 3, 3] = float("nan")
    assert_matches_torch(aten.adaptive_max_pool2d.default, x, [3, 2], tolerance=0.0)


@pytest.mark.parametrize("batched", [True, False])
def test_fractional(batched: bool) -> None:
    x, samples = torch.randn(2, 3, 9, 8, 7), torch.rand(2, 3, 3)
    if not batched:
        x, samples = x[0], samples[:1]
    assert_matches_torch(aten.fractional_max_pool3d.default, x, [2, 3, 2], [4, 5, 1], samples, tolerance=0.0)
    assert_matches_torch(aten.fractional_max_pool2d.default, x[..., 0], [2, 3], [4, 5], samples[..., :2], tolerance=0.0)


def test_unpool() -> None:
    values, places = aten.max_pool2d_with_indices(torch.randn(2, 3, 6, 8), [2, 2])
    assert_matches_torch(aten.max_unpool2d.default, values, places, [6, 8], tolerance=0.0)
    assert_matches_torch(aten.max_unpool2d.default, values[0], places[0], [7, 8], tolerance=0.0)
    values, places = aten.max_pool3d_with_indices(torch.randn(2, 3, 4, 6, 8), [2, 2, 2])
    assert_matches_torch(aten.max_unpool3d.default, values, places, [4, 6, 8], [2, 2, 2], [0, 0, 0], tolerance=0.0)
