"""Linear equations: substitution in triangles, one step of whole rows for each row, and what is built on it."""

import torch
from torch import Tensor

from fx_onnx.decompositions._empty_results import decomposes_unless_empty
from fx_onnx.decompositions._loops import Tensors, each, indices, pick
from fx_onnx.decompositions.factorization import LU, batched, lu, permutation_of, unit_matrix
from fx_onnx.decompositions.registry import aten


def substitute(A: Tensor, B: Tensor, upper: bool, unit: bool = False) -> Tensor:
    """X with A @ X = B, A being triangular."""

    def step(k: Tensor, X: Tensor, B: Tensor, strict: Tensor, diagonal: Tensor) -> Tensors:
        i = X.size(-2) - 1 - k if upper else k
        row = pick(B, -2, i) - torch.matmul(pick(strict, -2, i), X)
        row = row if unit else row / pick(diagonal, -2, i)
        return (torch.where(indices(X, -2) == i, row, X),)

    batch = torch.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    B = batched(B, batch)
    strict = A.triu(1) if upper else A.tril(-1)
    diagonal = A.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
    return each(A.size(-1), step, (torch.zeros_like(B),), (B, strict, diagonal))[0]


@decomposes_unless_empty(aten.linalg_solve_triangular.default)
def linalg_solve_triangular(
    self: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """X with A @ X = B, or X @ A = B, A being triangular."""
    if left:
        return substitute(self, B, upper, unitriangular)
    return substitute(self.mT, B.mT, not upper, unitriangular).mT


@decomposes_unless_empty(aten.triangular_solve.default)
def triangular_solve(
    self: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    """X with A @ X = self, A being triangular; and A."""
    matrix = A.mT if transpose else A
    X = substitute(matrix, self, upper != transpose, unitriangular)
    return X, A.expand((*X.shape[:-2], *A.shape[-2:])).clone()


def _solve_lu(factors: LU, B: Tensor) -> Tensor:
    """X with A @ X = B out of A's factorization."""
    batch = torch.broadcast_shapes(factors.packed.shape[:-2], B.shape[:-2])
    B = batched(B, batch)
    index = batched(factors.permutation, batch, 1).unsqueeze(-1)
    lower = substitute(factors.packed, B.gather(-2, index.expand(B.shape)), upper=False, unit=True)
    return substitute(factors.packed, lower, upper=True)


@decomposes_unless_empty(aten.linalg_inv_ex.default)
def linalg_inv_ex(A: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """The inverse, by LU factorization, and LAPACK's info; a singular matrix gives infinities and NaN."""
    factors = lu(A)
    return _solve_lu(factors, unit_matrix(A, A.size(-1), A.size(-1))), factors.info


@decomposes_unless_empty(aten.linalg_inv.default, aten.inverse.default)
def linalg_inv(A: Tensor) -> Tensor:
    """The inverse, by LU factorization; a singular matrix gives infinities and NaN, where torch raises."""
    return linalg_inv_ex(A)[0]


def _is_vector(A: Tensor, B: Tensor) -> bool:
    """torch's rule of what right-hand side is a (batch of) vectors."""
    return B.dim() == 1 or (B.dim() == A.dim() - 1 and tuple(B.shape) == tuple(A.shape[:-1]))


@decomposes_unless_empty(aten._linalg_solve_ex.default)
def _linalg_solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """X with A @ X = B, or X @ A = B, by LU factorization; L and U in one matrix; pivots and info."""
    vector = _is_vector(A, B)
    B = B.unsqueeze(-1) if vector else B
    factors = lu(A)
    X = _solve_lu(factors, B) if left else _solve_lu(lu(A.mT), B.mT).mT
    return (X.squeeze(-1) if vector else X), factors.packed, factors.pivots, factors.info


@decomposes_unless_empty(aten.linalg_lu_solve.default)
def linalg_lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """X with A @ X = B, or X @ A = B, A or its adjoint being factorized."""
    if not left:
        return linalg_lu_solve(LU, pivots, B.mH, adjoint=not adjoint).mH
    batch = torch.broadcast_shapes(LU.shape[:-2], B.shape[:-2])
    B = batched(B, batch)
    permutation = batched(permutation_of(pivots, LU.size(-1)), batch, 1)
    if adjoint:
        X = substitute(LU.mH, substitute(LU.mH, B, upper=False), upper=True, unit=True)
        return X.gather(-2, permutation.argsort(-1).unsqueeze(-1).expand(X.shape))
    rows = B.gather(-2, permutation.unsqueeze(-1).expand(B.shape))
    return substitute(LU, substitute(LU, rows, upper=False, unit=True), upper=True)


@decomposes_unless_empty(aten.cholesky_solve.default)
def cholesky_solve(self: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """X with A @ X = self out of A's Cholesky factor."""
    lower = input2.mH if upper else input2
    return substitute(lower.mH, substitute(lower, self, upper=False), upper=True)


@decomposes_unless_empty(aten.cholesky_inverse.default)
def cholesky_inverse(self: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A out of its Cholesky factor."""
    return cholesky_solve(unit_matrix(self, self.size(-1), self.size(-1)), self, upper)
