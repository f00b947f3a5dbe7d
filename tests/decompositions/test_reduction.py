"""Decompositions of reductions against torch."""

import math

import pytest
import torch

from tests.decompositions.harness import assert_matches_torch, randn

aten = torch.ops.aten
x = randn(3, 4, 5)
with_nan = torch.where(x > 1, math.nan, x)
dims = pytest.mark.parametrize("dim", [None, [], [0], [-1, 0], [0, 1, 2]])


@dims
@pytest.mark.parametrize("keepdim", [False, True])
def test_moments(dim: list[int] | None, keepdim: bool) -> None:
    for correction in (None, 0, 1, 2.5, 100):
        for target in (aten.var, aten.std, aten.var_mean, aten.std_mean):
            assert_matches_torch(target.correction, x, dim, correction=correction, keepdim=keepdim)
    assert_matches_torch(aten.var.correction, torch.tensor(2.0))
    assert_matches_torch(aten.var_mean.correction, torch.zeros(0, 3), [0], keepdim=keepdim)


@dims
@pytest.mark.parametrize("ord", [0, 1, 2, 3, 0.5, -1.5, math.inf, -math.inf])
def test_norms(dim: list[int] | None, ord: float) -> None:
    assert_matches_torch(aten.linalg_vector_norm.default, x, ord, dim)
    assert_matches_torch(aten.linalg_vector_norm.default, x.half(), ord, dim, True, dtype=torch.float32)
    assert_matches_torch(aten.norm.ScalarOpt_dim, x, ord, dim or [])
    assert_matches_torch(aten.norm.Scalar, x, ord)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(dtype: torch.dtype) -> None:
    """The squares and their sum are above 65504, the largest number of float16."""
    large = (randn(2, 512) * 300).to(dtype)
    for target in (aten.var, aten.std, aten.var_mean, aten.std_mean):
        assert_matches_torch(target.correction, large, [1])
        assert_matches_torch(target.correction, large, [1], correction=0, keepdim=True)
    assert_matches_torch(aten.linalg_vector_norm.default, large, 3, [1])


@dims
def test_counts(dim: list[int] | None) -> None:
    assert_matches_torch(aten.nansum.default, with_nan, dim, True)
    assert_matches_torch(aten.nansum.default, (x * 3).long(), dim)
    assert_matches_torch(aten.count_nonzero.dim_IntList, (x * 2).long(), dim or [])
    for dtype in (torch.bool, torch.uint8, torch.float32):
        truth = (x.abs() > 1).to(dtype)
        for target in (aten.any.dims, aten.all.dims):
            assert_matches_torch(target, truth, dim, True)
            assert_matches_torch(target, torch.zeros(2, 0, 3, dtype=dtype), dim)


def test_reductions_to_a_scalar() -> None:
    assert_matches_torch(aten.mean.default, torch.zeros(0))
    assert_matches_torch(aten.mean.dim, torch.zeros(2, 0), [1], True)
    assert_matches_torch(aten.any.default, torch.zeros(0))
    assert_matches_torch(aten.all.default, torch.zeros(0, dtype=torch.uint8))
    assert_matches_torch(aten.aminmax.default, x, dim=1, keepdim=True)
    assert_matches_torch(aten.aminmax.default, torch.tensor(3))
    assert_matches_torch(aten.count_nonzero.default, x, -1)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.uint8, torch.float64, None])
def test_prod(dtype: torch.dtype | None) -> None:
    numbers = torch.tensor([[2**30, 2**30 + 5, 3], [5, -7, 11]], dtype=torch.int32)
    for self in (numbers, numbers[:, :0], numbers[:0], numbers[0, 2]):
        assert_matches_torch(aten.prod.default, self, dtype=dtype)
        assert_matches_torch(aten.prod.dim_int, self, -1, True, dtype=dtype)
        assert_matches_torch(aten.prod.dim_int, self, 0, dtype=dtype)
