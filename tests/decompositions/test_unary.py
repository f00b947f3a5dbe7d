"""Decompositions of exponentials, logarithms and related functions against torch."""

import math

import pytest
import torch

from fx_onnx.decompositions import DECOMPOSITIONS as DECOMPOSED
from tests.decompositions.harness import assert_matches_torch, evenly_spaced, special_values

aten = torch.ops.aten


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions(dtype: torch.dtype) -> None:
    x = special_values(dtype)
    for target in (aten.expm1, aten.log1p, aten.logit, aten.special_entr, aten.angle):
        assert_matches_torch(target.default, x)
        assert_matches_torch(target.default, torch.arange(-2, 3))
    assert_matches_torch(aten.sinc.default, x[:9])
    assert_matches_torch(aten.logit.default, evenly_spaced(0, 1, dtype), 1e-3)
    assert_matches_torch(aten.nan_to_num.default, torch.arange(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_relative_error_near_zero(dtype: torch.dtype) -> None:
    x = torch.tensor([1e-3, -1e-3, 1e-6, 1e-12, 1e-30], dtype=dtype)
    for target in (aten.expm1.default, aten.log1p.default):
        torch.testing.assert_close(target(x) / x, DECOMPOSED[target](x) / x, rtol=4e-7, atol=0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions_of_two_numbers(dtype: torch.dtype) -> None:
    x = special_values(dtype)
    for target in (aten.logaddexp.default, aten.logaddexp2.default, aten.xlogy.Tensor, aten.special_xlog1py.default):
        assert_matches_torch(target, x, x.unsqueeze(1))
    assert_matches_torch(aten.xlogy.Scalar_Self, 2, x)
    assert_matches_torch(aten.xlogy.Scalar_Other, x, 2)
    assert_matches_torch(aten.xlogy.Tensor, torch.arange(3), torch.arange(3))
    assert_matches_torch(aten.ldexp.Tensor, x, torch.arange(12) - 6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_frexp_is_exact(dtype: torch.dtype) -> None:
    limits = torch.finfo(dtype)
    x = torch.cat(
        [
            evenly_spaced(-9, 9, dtype),
            torch.tensor([0.0, limits.max, limits.smallest_normal, 1e-3 * limits.smallest_normal]),
        ]
    )
    got, want = DECOMPOSED[aten.frexp.Tensor](x), torch.frexp(x)
    assert torch.equal(got[0], want[0])
    assert torch.equal(got[1], want[1])
    assert math.isnan(DECOMPOSED[aten.frexp.Tensor](torch.tensor([math.nan]))[0])
