"""How a decomposition is tested: in torch alone, against the operator that it replaces."""

from typing import Any

import torch

from fx_onnx.decompositions import DECOMPOSITIONS
from tests.compare import assert_close


def check(target: Any, *args: Any, tolerance: float | None = None, **kwargs: Any) -> None:
    """Raises AssertionError where the decomposition of ``target`` gives another value, shape or dtype."""
    with torch.no_grad():
        assert_close(DECOMPOSITIONS[target](*args, **kwargs), target(*args, **kwargs), tolerance)


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Normally distributed numbers, the same at each call."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
