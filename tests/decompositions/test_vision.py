"""Decompositions of operators on images against torch."""

import pytest
import torch

from tests.decompositions.harness import assert_matches_torch

aten = torch.ops.aten


def test_shuffles() -> None:
    for lead in ((), (2,), (2, 3)):
        assert_matches_torch(aten.pixel_shuffle.default, torch.randn(*lead, 8, 3, 4), 2, tolerance=0.0)
        assert_matches_torch(aten.pixel_unshuffle.default, torch.randn(*lead, 2, 4, 6), 2, tolerance=0.0)
    assert_matches_torch(aten.channel_shuffle.default, torch.randn(2, 6, 3, 4), 3, tolerance=0.0)


@pytest.mark.parametrize("padding", [[0, 0], [1, 2]])
def test_im2col(padding: list[int]) -> None:
    for x in (torch.randn(2, 3, 7, 8), torch.randn(3, 7, 8)):
        assert_matches_torch(aten.im2col.default, x, [2, 3], [1, 2], padding, [2, 1], tolerance=0.0)


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("corners", [False, True])
def test_grid_sampler(mode: int, padding: int, corners: bool) -> None:
    grid = torch.rand(2, 4, 5, 2) * 5 - 2.5
    assert_matches_torch(
        aten.grid_sampler.default, torch.randn(2, 3, 5, 6), grid, mode, padding, corners, tolerance=3e-6
    )
    if mode != 2:
        grid = torch.rand(2, 4, 5, 2, 3) * 5 - 2.5
        assert_matches_torch(
            aten.grid_sampler_3d.default, torch.randn(2, 3, 5, 6, 4), grid, mode, padding, corners, tolerance=3e-6
        )


@pytest.mark.parametrize("corners", [False, True])
def test_affine_grid(corners: bool) -> None:
    assert_matches_torch(
        aten.affine_grid_generator.default, torch.randn(2, 2, 3), [2, 3, 4, 5], corners, tolerance=3e-6
    )
    assert_matches_torch(
        aten.affine_grid_generator.default, torch.randn(2, 2, 3), [2, 3, 1, 5], corners, tolerance=3e-6
    )
    assert_matches_torch(
        aten.affine_grid_generator.default, torch.randn(2, 3, 4), [2, 3, 4, 5, 6], corners, tolerance=3e-6
    )
