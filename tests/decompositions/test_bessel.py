"""Decompositions of Bessel functions against torch, whose own J, Y and Ai have errors up to 4e-6 in float64."""

from typing import Any

import pytest
import torch

from tests.decompositions.harness import assert_matches_torch, evenly_spaced

aten = torch.ops.aten
MODIFIED = [
    aten.i0, aten.special_i0e, aten.special_i1, aten.special_i1e, aten.special_modified_bessel_i0,
    aten.special_modified_bessel_i1, aten.special_modified_bessel_k0, aten.special_modified_bessel_k1,
    aten.special_scaled_modified_bessel_k0, aten.special_scaled_modified_bessel_k1, aten.special_spherical_bessel_j0,
]  # fmt: skip
OSCILLATING = [
    aten.special_bessel_j0, aten.special_bessel_j1, aten.special_bessel_y0, aten.special_bessel_y1,
    aten.special_airy_ai,
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("target", MODIFIED)
def test_modified(target: Any, dtype: torch.dtype) -> None:
    assert_matches_torch(target.default, evenly_spaced(-20.3, 20.7, dtype))
    assert_matches_torch(target.default, torch.tensor([0.0, torch.inf, -torch.inf, torch.nan], dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("target", OSCILLATING)
def test_oscillating(target: Any, dtype: torch.dtype) -> None:
    assert_matches_torch(target.default, evenly_spaced(-30.3, 30.7, dtype), tolerance=1e-5)
    assert_matches_torch(target.default, torch.tensor([0.0, torch.nan], dtype=dtype))
    assert_matches_torch(target.default, torch.arange(-3, 4), tolerance=1e-5)
