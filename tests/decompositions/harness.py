"""The harness of the decomposition tests: compares a decomposition with the operator that it replaces, without ONNX."""

from typing import Any

import torch
from torch import Tensor

from fx_onnx.decompositions import DECOMPOSITIONS
from tests.compare import assert_close

SPECIAL = (0.0, -0.0, 0.5, 1.5, -1.5, 2.0, -2.0, 0.1, 30.0, torch.inf, -torch.inf, torch.nan)


def assert_matches_torch(target: Any, *args: Any, tolerance: float | None = None, **kwargs: Any) -> Any:
    """Checks the decomposition of the overload ``target`` against ``target`` itself, and returns torch's result.

    Args:
        tolerance: the largest difference, relative to the largest value of the output (see ``assert_close``).

    Raises:
        AssertionError: a value, a shape or a dtype differs.
    """
    function = DECOMPOSITIONS.get(target) or DECOMPOSITIONS[target._schema.name]
    with torch.no_grad():
        want = target(*args, **kwargs)
        assert_close(function(*args, **kwargs), want, tolerance)
    return want


# ---------------------------------------------------------------- inputs


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Returns normally distributed numbers, the same ones at each call with the same seed."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def complex_randn(*shape: int, scale: float = 2.0, dtype: torch.dtype = torch.complex128) -> Tensor:
    """Returns normally distributed complex numbers, the same ones at each call."""
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0)) * scale


def special_values(dtype: torch.dtype = torch.float32, *sizes: int) -> Tensor:
    """Returns zeros of both signs, infinities, NaN and a few ordinary numbers."""
    return torch.tensor(SPECIAL, dtype=dtype).reshape(sizes or (-1,))


def evenly_spaced(low: float, high: float, dtype: torch.dtype = torch.float32, count: int = 301) -> Tensor:
    """Returns ``count`` numbers from ``low`` to ``high`` at equal distances; few of them are integers."""
    return torch.linspace(low, high, count, dtype=torch.float64).to(dtype)
