"""Decompositions of the error function, the gamma function and related functions against torch."""

import math
from typing import Any

import pytest
import torch

from fx_onnx.decompositions import DECOMPOSITIONS
from tests.decompositions.harness import assert_matches_torch, evenly_spaced

aten = torch.ops.aten
LIMITS = [0.0, -0.0, torch.inf, -torch.inf, torch.nan]
DTYPES = [torch.float32, torch.float64]


def numbers(dtype: torch.dtype, low: float = -9.03, high: float = 9.01) -> torch.Tensor:
    return torch.cat([evenly_spaced(low, high, dtype), torch.tensor(LIMITS, dtype=dtype)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "target", [aten.erfc, aten.special_erfcx, aten.special_ndtr, aten.special_log_ndtr, aten.lgamma, aten.digamma]
)
def test_functions(target: Any, dtype: torch.dtype) -> None:
    assert_matches_torch(target.default, numbers(dtype))
    assert_matches_torch(target.default, torch.arange(1, 5))


def test_small_relative_error_in_the_tails() -> None:
    x = torch.tensor([1.0, 5.0, 9.0])
    torch.testing.assert_close(DECOMPOSITIONS[aten.erfc.default](x), torch.erfc(x), rtol=1e-6, atol=0.0)
    x = torch.tensor([-5.0, -20.0, -100.0])
    want = torch.special.log_ndtr(x.double()).float()
    torch.testing.assert_close(DECOMPOSITIONS[aten.special_log_ndtr.default](x), want, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_inverses(dtype: torch.dtype) -> None:
    y = torch.cat([evenly_spaced(-1, 1, dtype), torch.tensor([1e-8, 1e-30, 1 - 1e-6, -2.0, torch.nan], dtype=dtype)])
    assert_matches_torch(aten.erfinv.default, y)
    assert_matches_torch(aten.special_ndtri.default, y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_multivariate_gamma_and_polygamma(dtype: torch.dtype) -> None:
    for p in (1, 3, 5):
        assert_matches_torch(aten.mvlgamma.default, evenly_spaced(2.1, 40, dtype), p)
    for n in range(6):
        assert_matches_torch(aten.polygamma.default, n, evenly_spaced(0.3, 9, dtype))
        assert_matches_torch(aten.polygamma.default, n, evenly_spaced(-8.7, -0.3, dtype, 30))


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeta(dtype: torch.dtype) -> None:
    q = torch.cat([evenly_spaced(-8.7, 9, dtype, 60), torch.arange(-3.0, 4.0).to(dtype)])
    assert_matches_torch(aten.special_zeta.default, torch.arange(-2.0, 9.0).to(dtype).unsqueeze(1), q)
    assert_matches_torch(aten.special_zeta.default, evenly_spaced(0.5, 9, dtype, 40).unsqueeze(1), q)
    assert_matches_torch(aten.special_zeta.self_scalar, 3, q)
    assert_matches_torch(aten.special_zeta.other_scalar, evenly_spaced(1.1, 9, dtype), 1)
    assert math.isnan(DECOMPOSITIONS[aten.special_zeta.default](torch.tensor([3.0]), torch.tensor([-20.5])))
