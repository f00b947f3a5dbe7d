"""LU, Cholesky and QR factorizations: one step of whole-tensor arithmetic for each column.

All sizes may be symbolic. The algorithms are LAPACK's unblocked ones, so the accuracy is the same: LU with partial
pivoting (getf2; Golub and Van Loan, Matrix Computations, 3.4), left-looking Cholesky (potf2; 4.2) and Householder QR
(geqr2; 5.2). A step computes on whole matrices under masks, whereas LAPACK's steps work on ever smaller blocks. This
costs up to three times the arithmetic, which is still O(n³).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fx_onnx.decompositions._empty_results import decomposes_unless_empty
from fx_onnx.decompositions._loops import Tensors, for_loop, indices_along, slice_at
from fx_onnx.decompositions.registry import aten


def to_float64(A: Tensor, to_complex: bool = False) -> Tensor:
    """Returns the matrix in float64; in complex128 if it is complex or ``to_complex`` is true."""
    return A.to(torch.complex128) if to_complex or A.is_complex() else A.double()


def diagonal_length(A: Tensor) -> int:
    """Returns the length of the diagonal of a matrix: the smaller of its two sizes."""
    size: int = torch.sym_min(A.size(-2), A.size(-1))
    return size


def expand_batch(x: Tensor, batch: Sequence[int], dims: int = 2) -> Tensor:
    """Returns the tensor with all axes but the last ``dims``, which are batch axes, expanded to ``batch``."""
    return x.expand((*batch, *x.shape[x.dim() - dims :])) if batch else x


def batched_eye(A: Tensor, m: int, n: int) -> Tensor:
    """Returns ones on the diagonal of m rows and n columns, for each matrix of the batch ``A``."""
    return expand_batch(torch.eye(m, n, dtype=A.dtype, device=A.device), A.shape[:-2])


class LU(NamedTuple):
    """An LU factorization in LAPACK's format.

    Attributes:
        packed: L below the diagonal, and U on and above it, in one matrix.
        permutation: for each row of the result, its row in the input.
        pivots: the row (counted from 1) that each row was swapped with, int32.
        info: the first column (counted from 1) whose pivot is zero, or 0, int32.
    """

    packed: Tensor
    permutation: Tensor
    pivots: Tensor
    info: Tensor


def pivot_magnitude(x: Tensor) -> Tensor:
    """Returns |x|, or |re x| + |im x| of complex numbers: LAPACK's cabs1, by which it chooses pivots."""
    return x.real.abs() + x.imag.abs() if x.is_complex() else x.abs()


def swap_rows(k: Tensor, row: Tensor, *matrices: Tensor) -> Tensors:
    """Returns the matrices with rows k and ``row`` swapped; both are 0-d tensors or shaped [..., 1, 1]."""
    rows = indices_along(matrices[0], -2)
    order = torch.where(rows == k, row, torch.where(rows == row, k, rows))
    return tuple(x.gather(-2, order.expand(x.shape)) for x in matrices)


def _eliminate_below(A: Tensor, k: Tensor) -> Tensor:
    """Subtracts multiples of row k from the rows below it, and stores the factors in column k."""
    column, row = slice_at(A, -1, k), slice_at(A, -2, k)
    diagonal = slice_at(column, -2, k)
    factors = column / torch.where(diagonal == 0, 1.0, diagonal)
    columns = indices_along(A, -1)
    rest = torch.where(columns > k, A - factors * row, torch.where(columns == k, factors, A))
    return torch.where(indices_along(A, -2) > k, rest, A)


def lu(A: Tensor, pivot: bool = True) -> LU:
    """Factorizes A[permutation] = L @ U; the pivot is the element of the column with the largest magnitude."""

    def step(k: Tensor, A: Tensor, *swaps: Tensor) -> Tensors:
        if swaps:
            permutation, pivots = swaps
            sizes = torch.where(indices_along(A, -2) < k, -1.0, pivot_magnitude(slice_at(A, -1, k)))
            row = sizes.argmax(-2, keepdim=True)
            A, permutation = swap_rows(k, row, A, permutation)
            swaps = permutation, torch.where(indices_along(pivots, -1) == k, row.squeeze(-1) + 1, pivots)
        return _eliminate_below(A, k), *swaps

    batch, count = A.shape[:-2], diagonal_length(A)
    permutation = expand_batch(indices_along(A, -2), batch)
    pivots = expand_batch(torch.arange(1, 1 + count, device=A.device), batch, 1)
    packed, *swaps = for_loop(count, step, (A, permutation, pivots) if pivot else (A,))
    if pivot:
        permutation, pivots = swaps
    info = lapack_info(packed.diagonal(dim1=-2, dim2=-1) == 0)
    return LU(packed, permutation.squeeze(-1), pivots.to(torch.int32), info)


def lapack_info(failed: Tensor) -> Tensor:
    """Returns LAPACK's info: the first column (counted from 1) that ``failed``, or 0."""
    before = (failed.cumsum(-1) == 0).sum(-1)
    return torch.where(before == failed.size(-1), 0, before + 1).to(torch.int32)


def permutation_sign(factors: LU) -> Tensor:
    """Returns the sign of the permutation: -1 for an odd number of swaps."""
    swaps = (factors.pivots != indices_along(factors.pivots, -1) + 1).sum(-1)
    return (1 - 2 * (swaps % 2)).to(factors.packed.dtype)


@decomposes_unless_empty(aten.linalg_lu_factor_ex.default)
def linalg_lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Returns L and U in one matrix, LAPACK's pivots and its info."""
    factors = lu(A, pivot)
    return factors.packed, factors.pivots, factors.info


def unpack_lu(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Returns L, with ones on its diagonal, and U."""
    k = diagonal_length(packed)
    eye = torch.eye(packed.size(-2), k, dtype=packed.dtype, device=packed.device)
    return packed[..., :k].tril(-1) + eye, packed[..., :k, :].triu()


def permutation_matrix(permutation: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the permutation matrix P with A = P @ L @ U."""
    rows = torch.arange(permutation.size(-1), device=permutation.device)
    return (permutation.unsqueeze(-2) == rows.unsqueeze(-1)).to(dtype)


@decomposes_unless_empty(aten.linalg_lu.default)
def linalg_lu(A: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Returns P, L and U with A = P @ L @ U; P is empty without pivoting."""
    factors = lu(A, pivot)
    lower, upper = unpack_lu(factors.packed)
    matrix = permutation_matrix(factors.permutation, A.dtype) if pivot else A.new_zeros((0,))
    return matrix, lower, upper


def permutation_of_swaps(pivots: Tensor, m: int) -> Tensor:
    """Returns the permutation of 0 … m - 1 that results from LAPACK's swaps, applied in order."""

    def step(k: Tensor, permutation: Tensor, pivots: Tensor) -> Tensors:
        return swap_rows(k, slice_at(pivots, -1, k).unsqueeze(-1) - 1, permutation)

    rows = expand_batch(torch.arange(m, device=pivots.device).unsqueeze(-1), pivots.shape[:-1])
    return for_loop(pivots.size(-1), step, (rows,), (pivots.to(torch.int64),))[0].squeeze(-1)


@decomposes_unless_empty(aten.lu_unpack.default)
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns P, L and U of a packed factorization; a part that the caller did not ask for is empty."""
    empty = LU_data.new_zeros((0,))
    lower, upper = unpack_lu(LU_data) if unpack_data else (empty, empty)
    if not unpack_pivots:
        return empty, lower, upper
    permutation = permutation_of_swaps(LU_pivots, LU_data.size(-2))
    return permutation_matrix(permutation, LU_data.dtype), lower, upper


@decomposes_unless_empty(aten._linalg_det.default)
def _linalg_det(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the determinant, L and U in one matrix, and the pivots."""
    factors = lu(A)
    det = factors.packed.diagonal(dim1=-2, dim2=-1).prod(-1) * permutation_sign(factors)
    return det, factors.packed, factors.pivots


@decomposes_unless_empty(aten.linalg_det.default, aten.det.default)
def linalg_det(A: Tensor) -> Tensor:
    """Returns the determinant: the product of U's diagonal and the sign of the permutation."""
    return _linalg_det(A)[0]


@decomposes_unless_empty(aten._linalg_slogdet.default)
def _linalg_slogdet(A: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the sign and the logarithm of the determinant, L and U in one matrix, and the pivots.

    The logarithm is the sum of logarithms, so it neither overflows nor underflows.
    """
    factors = lu(A)
    diagonal = factors.packed.diagonal(dim1=-2, dim2=-1)
    sign = diagonal.sgn().prod(-1) * permutation_sign(factors)
    return sign, diagonal.abs().log().sum(-1), factors.packed, factors.pivots


def cholesky(A: Tensor) -> tuple[Tensor, Tensor]:
    """Returns L with A = L @ Lᴴ, computed from A's lower triangle, and LAPACK's info.

    When a pivot is not positive, L keeps A's values from that column on.
    """

    def step(k: Tensor, L: Tensor, info: Tensor) -> Tensors:
        rows, columns = indices_along(L, -2), indices_along(L, -1)
        old = slice_at(L, -1, k)
        column = old - torch.matmul(L, torch.where(columns < k, slice_at(L, -2, k), 0.0).mH)
        pivot = slice_at(column, -2, k).real if L.is_complex() else slice_at(column, -2, k)
        fails = ~(pivot > 0)
        root = torch.where(fails, pivot, pivot.sqrt())
        rest = torch.where(fails, old, column / root)
        column = torch.where(rows < k, old, torch.where(rows == k, root, rest))
        L = torch.where((columns == k) & (info == 0), column, L)
        return L, torch.where((info == 0) & fails, k + 1, info)

    info = torch.zeros((*A.shape[:-2], 1, 1), dtype=torch.int64, device=A.device)
    factor, info = for_loop(A.size(-1), step, (A.tril(), info))
    return factor, info[..., 0, 0].to(torch.int32)


@decomposes_unless_empty(aten.linalg_cholesky_ex.default)
def linalg_cholesky_ex(self: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """Returns L with A = L @ Lᴴ, or Lᴴ if ``upper``; and LAPACK's info."""
    factor, info = cholesky(self.mH if upper else self)
    return (factor.mH if upper else factor), info


@decomposes_unless_empty(aten.linalg_cholesky.default, aten.cholesky.default)
def linalg_cholesky(self: Tensor, upper: bool = False) -> Tensor:
    """Returns L with A = L @ Lᴴ, or Lᴴ if ``upper``; NaN if A is not positive definite, where torch raises an error."""
    factor, info = linalg_cholesky_ex(self, upper=upper)
    return torch.where(info[..., None, None] == 0, factor, torch.nan)


def squared_magnitude(x: Tensor) -> Tensor:
    """Returns |x|²."""
    return x.real * x.real + x.imag * x.imag if x.is_complex() else x * x


def householder_reflection(column: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns v, tau and beta of the Householder reflection H = 1 - tau v vᴴ of a column.

    Hᴴ @ column is beta in row k and zero below; rows above k are unchanged. Source: LAPACK larfg.
    """
    rows = indices_along(column, -2)
    alpha, tail = slice_at(column, -2, k), torch.where(rows > k, column, 0.0)
    rest = squared_magnitude(tail).sum(-2, keepdim=True)
    length = torch.sqrt(squared_magnitude(alpha) + rest)
    beta = torch.where((alpha.real if alpha.is_complex() else alpha) >= 0, -length, length)
    is_zero_below = (rest == 0) & (alpha.imag == 0) if alpha.is_complex() else rest == 0
    tau = torch.where(is_zero_below, 0.0, (beta - alpha) / torch.where(is_zero_below, 1.0, beta))
    vector = torch.where(rows == k, 1.0, tail / torch.where(is_zero_below, 1.0, alpha - beta))
    return vector, tau, torch.where(is_zero_below, alpha, beta)


@decomposes_unless_empty(aten.geqrf.default)
def geqrf(self: Tensor) -> tuple[Tensor, Tensor]:
    """Returns R with the Householder vectors below its diagonal, and their factors tau, with LAPACK's signs."""

    def step(k: Tensor, A: Tensor, taus: Tensor) -> Tensors:
        column, rows, columns = slice_at(A, -1, k), indices_along(A, -2), indices_along(A, -1)
        vector, tau, beta = householder_reflection(column, k)
        rest = A - tau.conj() * vector * torch.matmul(vector.mH, A)
        column = torch.where(rows < k, column, torch.where(rows == k, beta, vector))
        A = torch.where(columns > k, rest, torch.where(columns == k, column, A))
        return A, torch.where(indices_along(taus, -1) == k, tau.squeeze(-1), taus)

    packed, taus = for_loop(
        diagonal_length(self), step, (self, self.new_zeros((*self.shape[:-2], diagonal_length(self))))
    )
    return packed, taus


def apply_reflections(packed: Tensor, taus: Tensor, C: Tensor, adjoint: bool = False) -> Tensor:
    """Returns H_1 … H_k @ C for the reflections that ``geqrf`` packs; H_kᴴ … H_1ᴴ @ C if ``adjoint``."""

    def step(k: Tensor, C: Tensor, packed: Tensor, taus: Tensor) -> Tensors:
        k = k if adjoint else taus.size(-1) - 1 - k
        rows = indices_along(packed, -2)
        vector = torch.where(rows == k, 1.0, torch.where(rows > k, slice_at(packed, -1, k), 0.0))
        tau = slice_at(taus, -1, k).unsqueeze(-1)
        return (C - (tau.conj() if adjoint else tau) * vector * torch.matmul(vector.mH, C),)

    return for_loop(taus.size(-1), step, (C,), (packed, taus))[0]


@decomposes_unless_empty(aten.linalg_qr.default)
def linalg_qr(A: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """Returns Q and R with A = Q @ R; Q is empty in mode "r"."""
    m = A.size(-2)
    packed, taus = geqrf(A)
    k = m if mode == "complete" else diagonal_length(A)
    R = packed[..., :k, :].triu()
    return A.new_zeros((0,)) if mode == "r" else apply_reflections(packed, taus, batched_eye(A, m, k)), R


@decomposes_unless_empty(aten.linalg_householder_product.default)
def linalg_householder_product(input: Tensor, tau: Tensor) -> Tensor:
    """Returns the first columns of the product of the reflections that ``geqrf`` packs."""
    return apply_reflections(input, tau, batched_eye(input, input.size(-2), input.size(-1)))


@decomposes_unless_empty(aten.ormqr.default)
def ormqr(self: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """Returns Q @ input3, or input3 @ Q if not ``left``; Q is the product of the reflections, or its adjoint."""
    if left:
        return apply_reflections(self, input2, input3, transpose)
    return apply_reflections(self, input2, input3.mH, not transpose).mH
