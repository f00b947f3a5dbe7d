"""Decompositions of the incomplete gamma functions against torch."""

import pytest
import torch

from tests.decompositions.harness import assert_matches_torch, evenly_spaced

aten = torch.ops.aten
ORDERS = (0.0, 1e-3, 0.3, 1.0, 2.5, 9.0, 30.0, 145.0, 3000.0, torch.inf, -1.0)
MORE = (0.0, 1e-6, 30.0, 49.0, 145.0, 200.0, 2900.0, 3100.0, torch.inf, -1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_incomplete_gamma(dtype: torch.dtype) -> None:
    a = torch.tensor(ORDERS, dtype=dtype).unsqueeze(1)
    x = torch.cat([evenly_spaced(0.1, 12, dtype, 40), torch.tensor(MORE, dtype=dtype)])
    assert_matches_torch(aten.igamma.default, a, x)
    assert_matches_torch(aten.igammac.default, a, x)


def test_shapes_and_dtypes() -> None:
    assert_matches_torch(aten.igamma.default, torch.ones(2, 1, dtype=torch.float64), torch.ones(3))
    assert_matches_torch(aten.igammac.default, torch.ones(()), torch.ones(3))
    assert_matches_torch(aten.igamma.default, torch.ones(0, 3), torch.ones(3))
