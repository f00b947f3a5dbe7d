"""Decompositions of linear equations against LAPACK."""

import pytest
import torch

from tests.decompositions.harness import assert_matches_torch, randn

aten = torch.ops.aten


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize(("a", "b"), [((4, 4), (4, 2)), ((2, 3, 3), (3, 5)), ((3, 3), (2, 3, 1)), ((0, 0), (0, 2))])
def test_triangular(a: tuple[int, ...], b: tuple[int, ...], upper: bool, unit: bool) -> None:
    A, B = randn(*a) + 3 * torch.eye(a[-1]), randn(*b, seed=1)
    triangle = A.triu() if upper else A.tril()
    assert_matches_torch(aten.linalg_solve_triangular.default, triangle, B, upper=upper, unitriangular=unit)
    assert_matches_torch(
        aten.linalg_solve_triangular.default, triangle, B.mT, upper=upper, left=False, unitriangular=unit
    )
    for transpose in (False, True):
        assert_matches_torch(aten.triangular_solve.default, B, A, upper, transpose, unit)


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (2, 3, 5, 5), (0, 3, 3), (0, 0)])
def test_inverse(shape: tuple[int, ...]) -> None:
    assert_matches_torch(aten.linalg_inv_ex.default, randn(*shape))


@pytest.mark.parametrize(("a", "b"), [((4, 4), (4, 2)), ((4, 4), (4,)), ((2, 3, 3), (2, 3)), ((3, 3), (2, 3, 3))])
@pytest.mark.parametrize("left", [True, False])
def test_solve(a: tuple[int, ...], b: tuple[int, ...], left: bool) -> None:
    A, B = randn(*a), randn(*b, seed=1)
    vector = B.dim() == 1 or B.shape == A.shape[:-1]
    if left or not vector:
        assert_matches_torch(aten._linalg_solve_ex.default, A, B if left else B.mT, left=left)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_factorized(batch: tuple[int, ...], left: bool, adjoint: bool) -> None:
    LU, pivots = torch.linalg.lu_factor(randn(*batch, 4, 4))
    B = randn(2, 4, 3, seed=1)
    assert_matches_torch(aten.linalg_lu_solve.default, LU, pivots, B if left else B.mT, left=left, adjoint=adjoint)


@pytest.mark.parametrize("upper", [True, False])
def test_cholesky_factor(upper: bool) -> None:
    A = randn(2, 4, 4)
    factor = torch.linalg.cholesky(A @ A.mT + torch.eye(4), upper=upper)
    assert_matches_torch(aten.cholesky_solve.default, randn(2, 4, 3, seed=1), factor, upper)
    assert_matches_torch(aten.cholesky_inverse.default, factor, upper)
