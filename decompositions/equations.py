"""Linear equations: substitution in triangular matrices, and the solvers built on it.

Substitution takes one step for each row, and a step computes a whole row. Source: Golub and Van Loan, Matrix
Computations, 3.1.
"""

import torch
from torch import Tensor

from fx_onnx.decompositions._empty_results import decomposes_unless_empty
from fx_onnx.decompositions._loops import Tensors, for_loop, indices_along, slice_at
from fx_onnx.decompositions.factorization import LU, batched_eye, expand_batch, lu, permutation_of_swaps
from fx_onnx.decompositions.registry import aten


def substitution(A: Tensor, B: Tensor, upper: bool, unit: bool = False) -> Tensor:
    """Returns X with A @ X = B for a triangular A, by forward substitution, or back substitution if ``upper``."""

    def step(k: Tensor, X: Tensor, B: Tensor, strict: Tensor, diagonal: Tensor) -> Tensors:
        i = X.size(-2) - 1 - k if upper else k
        row = slice_at(B, -2, i) - torch.matmul(slice_at(strict, -2, i), X)
        row = row if unit else row / slice_at(diagonal, -2, i)
        return (torch.where(indices_along(X, -2) == i, row, X),)

    batch = torch.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    B = expand_batch(B, batch)
    strict = A.triu(1) if upper else A.tril(-1)
    diagonal = A.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
    return for_loop(A.size(-1), step, (torch.zeros_like(B),), (B, strict, diagonal))[0]


@decomposes_unless_empty(aten.linalg_solve_triangular.default)
def linalg_solve_triangular(
    self: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """Returns X with A @ X = B, or X @ A = B if not ``left``, for a triangular A."""
    if left:
        return substitution(self, B, upper, unitriangular)
    return substitution(self.mT, B.mT, not upper, unitriangular).mT


@decomposes_unless_empty(aten.triangular_solve.default)
def triangular_solve(
    self: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns X with A @ X = self for a triangular A, and a copy of A."""
    matrix = A.mT if transpose else A
    X = substitution(matrix, self, upper != transpose, unitriangular)
    return X, A.expand((*X.shape[:-2], *A.shape[-2:])).clone()


def _solve_lu(factors: LU, B: Tensor) -> Tensor:
    """Returns X with A @ X = B from A's LU factorization."""
    batch = torch.broadcast_shapes(factors.packed.shape[:-2], B.shape[:-2])
    B = expand_batch(B, batch)
    index = expand_batch(factors.permutation, batch, 1).unsqueeze(-1)
    lower = substitution(factors.packed, B.gather(-2, index.expand(B.shape)), upper=False, unit=True)
    return substitution(factors.packed, lower, upper=True)


@decomposes_unless_empty(aten.linalg_inv_ex.default)
def linalg_inv_ex(A: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """Returns the inverse, by LU factorization, and LAPACK's info; a singular matrix gives infinities and NaN."""
    factors = lu(A)
    return _solve_lu(factors, batched_eye(A, A.size(-1), A.size(-1))), factors.info


@decomposes_unless_empty(aten.linalg_inv.default, aten.inverse.default)
def linalg_inv(A: Tensor) -> Tensor:
    """Returns the inverse, by LU factorization; a singular matrix gives infinities and NaN (torch raises an error)."""
    return linalg_inv_ex(A)[0]


def _is_vector(A: Tensor, B: Tensor) -> bool:
    """Returns whether torch treats the right-hand side B as a vector or a batch of vectors."""
    return B.dim() == 1 or (B.dim() == A.dim() - 1 and tuple(B.shape) == tuple(A.shape[:-1]))


@decomposes_unless_empty(aten._linalg_solve_ex.default)
def _linalg_solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns X with A @ X = B, or X @ A = B if not ``left``, by LU factorization.

    The other results are L and U in one matrix, the pivots and the info.
    """
    vector = _is_vector(A, B)
    B = B.unsqueeze(-1) if vector else B
    factors = lu(A)
    X = _solve_lu(factors, B) if left else _solve_lu(lu(A.mT), B.mT).mT
    return (X.squeeze(-1) if vector else X), factors.packed, factors.pivots, factors.info


@decomposes_unless_empty(aten.linalg_lu_solve.default)
def linalg_lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """Returns X with A @ X = B, or X @ A = B if not ``left``, from the LU factorization of A or of its adjoint."""
    if not left:
        return linalg_lu_solve(LU, pivots, B.mH, adjoint=not adjoint).mH
    batch = torch.broadcast_shapes(LU.shape[:-2], B.shape[:-2])
    B = expand_batch(B, batch)
    permutation = expand_batch(permutation_of_swaps(pivots, LU.size(-1)), batch, 1)
    if adjoint:
        X = substitution(LU.mH, substitution(LU.mH, B, upper=False), upper=True, unit=True)
        return X.gather(-2, permutation.argsort(-1).unsqueeze(-1).expand(X.shape))
    rows = B.gather(-2, permutation.unsqueeze(-1).expand(B.shape))
    return substitution(LU, substitution(LU, rows, upper=False, unit=True), upper=True)


@decomposes_unless_empty(aten.cholesky_solve.default)
def cholesky_solve(self: Tensor, input2: Tensor, upper: bool = False) -> Tensor:
    """Returns X with A @ X = self from A's Cholesky factor."""
    lower = input2.mH if upper else input2
    return substitution(lower.mH, substitution(lower, self, upper=False), upper=True)


@decomposes_unless_empty(aten.cholesky_inverse.default)
def cholesky_inverse(self: Tensor, upper: bool = False) -> Tensor:
    """Returns the inverse of A from A's Cholesky factor."""
    return cholesky_solve(batched_eye(self, self.size(-1), self.size(-1)), self, upper)
