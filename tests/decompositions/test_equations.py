"""Linear equations, against LAPACK."""

import pytest
import torch

from tests.decompositions.harness import check, random

aten = torch.ops.aten


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize(("a", "b"), [((4, 4), (4, 2)), ((2, 3, 3), (3, 5)), ((3, 3), (2, 3, 1)), ((0, 0), (0, 2))])
def test_triangular(a: tuple[int, ...], b: tuple[int, ...], upper: bool, unit: bool) -> None:
    A, B = random(*a) + 3 * torch.eye(a[-1]), random(*b, seed=1)
    triangle = A.triu() if upper else A.tril()
    check(aten.linalg_solve_triangular.default, triangle, B, upper=upper, unitriangular=unit)
    check(aten.linalg_solve_triangular.default, triangle, B.mT, upper=upper, left=False, unitriangular=unit)
    for transpose in (False, True):
        check(aten.triangular_solve.default, B, A, upper, transpose, unit)


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (2, 3, 5, 5), (0, 3, 3), (0, 0)])
def test_inverse(shape: tuple[int, ...]) -> None:
    check(aten.linalg_inv_ex.default, random(*shape))


@pytest.mark.parametrize(("a", "b"), [((4, 4), (4, 2)), ((4, 4), (4,)), ((2, 3, 3), (2, 3)), ((3, 3), (2, 3, 3))])
@pytest.mark.parametrize("left", [True, False])
def test_solve(a: tuple[int, ...], b: tuple[int, ...], left: bool) -> None:
    A, B = random(*a), random(*b, seed=1)
    vector = B.dim() == 1 or B.shape == A.shape[:-1]
    if left or not vector:
        check(aten._linalg_solve_ex.default, A, B if left else B.mT, left=left)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_factorized(batch: tuple[int, ...], left: bool, adjoint: bool) -> None:
    LU, pivots = torch.linalg.lu_factor(random(*batch, 4, 4))
    B = random(2, 4, 3, seed=1)
    check(aten.linalg_lu_solve.default, LU, pivots, B if left else B.mT, left=left, adjoint=adjoint)


@pytest.mark.parametrize("upper", [True, False])
def test_cholesky_factor(upper: bool) -> None:
    A = random(2, 4, 4)
    factor = torch.linalg.cholesky(A @ A.mT + torch.eye(4), upper=upper)
    check(aten.cholesky_solve.default, random(2, 4, 3, seed=1), factor, upper)
    check(aten.cholesky_inverse.default, factor, upper)
