"""The incomplete gamma functions, against torch."""

import pytest
import torch

from tests.decompositions.against import against, spread

aten = torch.ops.aten
ORDERS = (0.0, 1e-3, 0.3, 1.0, 2.5, 9.0, 30.0, 145.0, 3000.0, torch.inf, -1.0)
MORE = (0.0, 1e-6, 30.0, 49.0, 145.0, 200.0, 2900.0, 3100.0, torch.inf, -1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_incomplete_gamma(dtype: torch.dtype) -> None:
    a = torch.tensor(ORDERS, dtype=dtype).unsqueeze(1)
    x = torch.cat([spread(0.1, 12, dtype, 40), torch.tensor(MORE, dtype=dtype)])
    against(aten.igamma.default, a, x)
    against(aten.igammac.default, a, x)


def test_shapes_and_dtypes() -> None:
    against(aten.igamma.default, torch.ones(2, 1, dtype=torch.float64), torch.ones(3))
    against(aten.igammac.default, torch.ones(()), torch.ones(3))
    against(aten.igamma.default, torch.ones(0, 3), torch.ones(3))
