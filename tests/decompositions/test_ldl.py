"""Decompositions of symmetric indefinite factorizations against LAPACK."""

import pytest
import torch
from torch import Tensor

from tests.decompositions.harness import assert_matches_torch, randn

aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
SHAPES = [(1, 1), (2, 2), (5, 5), (2, 3, 6, 6), (12, 12), (30, 30), (0, 3, 3), (0, 0)]


def symmetric(shape: tuple[int, ...], dtype: torch.dtype, hermitian: bool, seed: int = 0) -> Tensor:
    A = randn(*shape, seed=seed).to(dtype)
    if dtype.is_complex:
        A = torch.complex(randn(*shape, seed=seed), randn(*shape, seed=seed + 1)).to(dtype)
    A = A + (A.mH if hermitian else A.mT)
    return torch.where(torch.eye(shape[-1], dtype=torch.bool), A / 8, A)  # a small diagonal causes pivots of two rows


@pytest.mark.parametrize("hermitian", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_factors_and_solutions(shape: tuple[int, ...], dtype: torch.dtype, hermitian: bool) -> None:
    A = symmetric(shape, dtype, hermitian)
    assert_matches_torch(aten.linalg_ldl_factor_ex.default, A, hermitian=hermitian)
    LD, pivots = torch.linalg.ldl_factor(A, hermitian=hermitian)
    if shape[-1] > 1 and A.numel():
        assert (pivots < 0).any() and (LD.numel() < 30 or (pivots > 0).any())
    B = randn(*shape[:-1], 2, seed=3).to(dtype)
    assert_matches_torch(aten.linalg_ldl_solve.default, LD, pivots, B, hermitian=hermitian)
    if len(shape) == 2:  # for batches, torch's own solver reads out of bounds
        assert_matches_torch(aten.linalg_ldl_solve.default, LD, pivots, B.repeat(2, 1, 1), hermitian=hermitian)


@pytest.mark.parametrize("seed", range(20))
def test_pivots(seed: int) -> None:
    assert_matches_torch(aten.linalg_ldl_factor_ex.default, symmetric((10, 10), torch.float64, False, seed))


@pytest.mark.parametrize("A", [torch.zeros(3, 3), torch.diag(torch.tensor([1.0, 0.0, 2.0])), torch.ones(3, 3)])
def test_singular_matrices_are_reported(A: Tensor) -> None:
    assert_matches_torch(aten.linalg_ldl_factor_ex.default, A)
