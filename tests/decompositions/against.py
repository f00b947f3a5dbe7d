"""How a decomposition is tested: in torch alone, against the operator that it takes apart."""

from typing import Any

import torch

from fx_onnx.decompositions import DECOMPOSITIONS
from tests.compare import assert_close

SPECIAL = (0.0, -0.0, 0.5, 1.5, -1.5, 2.0, -2.0, 0.1, 30.0, torch.inf, -torch.inf, torch.nan)


def against(target: Any, *args: Any, tolerance: float | None = None, **kwargs: Any) -> None:
    """Raises AssertionError where the decomposition of ``target`` gives another value, shape or dtype."""
    assert_close(DECOMPOSITIONS[target](*args, **kwargs), target(*args, **kwargs), tolerance)


def special(dtype: torch.dtype = torch.float32, *sizes: int) -> torch.Tensor:
    """Zeros of both signs, infinities, NaN and a few plain numbers."""
    return torch.tensor(SPECIAL, dtype=dtype).reshape(sizes or (-1,))


def spread(low: float, high: float, dtype: torch.dtype = torch.float32, count: int = 301) -> torch.Tensor:
    """Numbers at even steps, few of them whole."""
    return torch.linspace(low, high, count, dtype=torch.float64).to(dtype)
