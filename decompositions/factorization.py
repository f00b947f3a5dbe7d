"""LU, Cholesky and QR factorizations, one step of whole-tensor arithmetic for each column.

All sizes may be symbolic. The accuracy is that of LAPACK's unblocked algorithms, which these are: partial pivoting,
left-looking Cholesky, Householder reflections. A step computes on whole matrices under masks, where LAPACK's touch ever
less of them: up to three times the arithmetic, O(n³) all the same.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fx_onnx.decompositions._empty_results import decomposes_unless_empty
from fx_onnx.decompositions._loops import Tensors, each, indices, pick
from fx_onnx.decompositions.registry import aten


def wide(A: Tensor, to_complex: bool = False) -> Tensor:
    """The numbers in float64, or as complex ones of twice that."""
    return A.to(torch.complex128) if to_complex or A.is_complex() else A.double()


def shorter(A: Tensor) -> int:
    """The size of a matrix's diagonal."""
    size: int = torch.sym_min(A.size(-2), A.size(-1))
    return size


def batched(x: Tensor, batch: Sequence[int], dims: int = 2) -> Tensor:
    """The tensor, of ``dims`` axes or more, for each of a batch."""
    return x.expand((*batch, *x.shape[x.dim() - dims :])) if batch else x


def unit_matrix(A: Tensor, m: int, n: int) -> Tensor:
    """Ones on the diagonal of m rows and n columns, for each matrix of a batch ``A``."""
    return batched(torch.eye(m, n, dtype=A.dtype, device=A.device), A.shape[:-2])


class LU(NamedTuple):
    """L below the diagonal and U from it on, in one matrix; which row each row was; LAPACK's pivots and info."""

    packed: Tensor
    permutation: Tensor
    pivots: Tensor
    info: Tensor


def pivot_size(x: Tensor) -> Tensor:
    """What LAPACK chooses the pivot by: the magnitude, of complex numbers the sum of those of the parts."""
    return x.real.abs() + x.imag.abs() if x.is_complex() else x.abs()


def swapped(k: Tensor, place: Tensor, *matrices: Tensor) -> Tensors:
    """The matrices with their rows k and ``place``, each 0-d or [..., 1, 1], in each other's places."""
    rows = indices(matrices[0], -2)
    order = torch.where(rows == k, place, torch.where(rows == place, k, rows))
    return tuple(x.gather(-2, order.expand(x.shape)) for x in matrices)


def _eliminated(A: Tensor, k: Tensor) -> Tensor:
    """Row k out of the rows below it; their factors in column k."""
    column, row = pick(A, -1, k), pick(A, -2, k)
    diagonal = pick(column, -2, k)
    factors = column / torch.where(diagonal == 0, 1.0, diagonal)
    columns = indices(A, -1)
    rest = torch.where(columns > k, A - factors * row, torch.where(columns == k, factors, A))
    return torch.where(indices(A, -2) > k, rest, A)


def lu(A: Tensor, pivot: bool = True) -> LU:
    """A[permutation] = L @ U, with the largest element of each column as pivot."""

    def step(k: Tensor, A: Tensor, *swaps: Tensor) -> Tensors:
        if swaps:
            permutation, pivots = swaps
            sizes = torch.where(indices(A, -2) < k, -1.0, pivot_size(pick(A, -1, k)))
            place = sizes.argmax(-2, keepdim=True)
            A, permutation = swapped(k, place, A, permutation)
            swaps = permutation, torch.where(indices(pivots, -1) == k, place.squeeze(-1) + 1, pivots)
        return _eliminated(A, k), *swaps

    batch, count = A.shape[:-2], shorter(A)
    permutation = batched(indices(A, -2), batch)
    pivots = batched(torch.arange(1, 1 + count, device=A.device), batch, 1)
    packed, *swaps = each(count, step, (A, permutation, pivots) if pivot else (A,))
    if pivot:
        permutation, pivots = swaps
    return LU(packed, permutation.squeeze(-1), pivots.to(torch.int32), first_of(packed.diagonal(dim1=-2, dim2=-1) == 0))


def first_of(wrong: Tensor) -> Tensor:
    """LAPACK's info: the number of the first column that is, 0 for none."""
    places = torch.arange(wrong.size(-1), 0, -1, device=wrong.device)
    last = torch.nn.functional.pad(places * wrong, (1, 0)).amax(-1)
    return torch.where(last == 0, 0, wrong.size(-1) + 1 - last).to(torch.int32)


def determinant_sign(factors: LU) -> Tensor:
    """The sign of the permutation: -1 for an odd number of swaps."""
    swaps = (factors.pivots != indices(factors.pivots, -1) + 1).sum(-1)
    return (1 - 2 * (swaps % 2)).to(factors.packed.dtype)


@decomposes_unless_empty(aten.linalg_lu_factor_ex.default)
def linalg_lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """L and U in one matrix, LAPACK's pivots and info."""
    factors = lu(A, pivot)
    return factors.packed, factors.pivots, factors.info


def lower_upper(packed: Tensor) -> tuple[Tensor, Tensor]:
    """L with ones on its diagonal, and U."""
    k = shorter(packed)
    eye = torch.eye(packed.size(-2), k, dtype=packed.dtype, device=packed.device)
    return packed[..., :k].tril(-1) + eye, packed[..., :k, :].triu()


def permutation_matrix(permutation: Tensor, dtype: torch.dtype) -> Tensor:
    """P with A = P @ L @ U."""
    rows = torch.arange(permutation.size(-1), device=permutation.device)
    return (permutation.unsqueeze(-2) == rows.unsqueeze(-1)).to(dtype)


@decomposes_unless_empty(aten.linalg_lu.default)
def linalg_lu(A: Tensor, *, pivot: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """P, L and U with A = P @ L @ U; P is empty without pivoting."""
    factors = lu(A, pivot)
    lower, upper = lower_upper(factors.packed)
    matrix = permutation_matrix(factors.permutation, A.dtype) if pivot else A.new_zeros((0,))
    return matrix, lower, upper


def permutation_of(pivots: Tensor, m: int) -> Tensor:
    """The permutation that LAPACK's swaps, done in order, make of 0..m-1."""

    def step(k: Tensor, permutation: Tensor, pivots: Tensor) -> Tensors:
        return swapped(k, pick(pivots, -1, k).unsqueeze(-1) - 1, permutation)

    rows = batched(torch.arange(m, device=pivots.device).unsqueeze(-1), pivots.shape[:-1])
    return each(pivots.size(-1), step, (rows,), (pivots.to(torch.int64),))[0].squeeze(-1)


@decomposes_unless_empty(aten.lu_unpack.default)
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """P, L and U out of a packed factorization; what is not asked for is empty."""
    empty = LU_data.new_zeros((0,))
    lower, upper = lower_upper(LU_data) if unpack_data else (empty, empty)
    if not unpack_pivots:
        return empty, lower, upper
    permutation = permutation_of(LU_pivots, LU_data.size(-2))
    return permutation_matrix(permutation, LU_data.dtype), lower, upper


@decomposes_unless_empty(aten._linalg_det.default)
def _linalg_det(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The product of U's diagonal with the sign of the permutation; L and U in one matrix; pivots."""
    factors = lu(A)
    det = factors.packed.diagonal(dim1=-2, dim2=-1).prod(-1) * determinant_sign(factors)
    return det, factors.packed, factors.pivots


@decomposes_unless_empty(aten.linalg_det.default, aten.det.default)
def linalg_det(A: Tensor) -> Tensor:
    """The product of U's diagonal with the sign of the permutation."""
    return _linalg_det(A)[0]


@decomposes_unless_empty(aten._linalg_slogdet.default)
def _linalg_slogdet(A: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sign and logarithm of the determinant, without its over- and underflow; L and U in one matrix; pivots."""
    factors = lu(A)
    diagonal = factors.packed.diagonal(dim1=-2, dim2=-1)
    sign = diagonal.sgn().prod(-1) * determinant_sign(factors)
    return sign, diagonal.abs().log().sum(-1), factors.packed, factors.pivots


def cholesky(A: Tensor) -> tuple[Tensor, Tensor]:
    """L with A = L @ Lᴴ, from A's lower triangle, and LAPACK's info; from a pivot that is not positive on, A stays."""

    def step(k: Tensor, L: Tensor, info: Tensor) -> Tensors:
        rows, columns = indices(L, -2), indices(L, -1)
        old = pick(L, -1, k)
        column = old - torch.matmul(L, torch.where(columns < k, pick(L, -2, k), 0.0).mH)
        pivot = pick(column, -2, k).real if L.is_complex() else pick(column, -2, k)
        fails = ~(pivot > 0)
        root = torch.where(fails, pivot, pivot.sqrt())
        rest = torch.where(fails, old, column / root)
        column = torch.where(rows < k, old, torch.where(rows == k, root, rest))
        L = torch.where((columns == k) & (info == 0), column, L)
        return L, torch.where((info == 0) & fails, k + 1, info)

    info = torch.zeros((*A.shape[:-2], 1, 1), dtype=torch.int64, device=A.device)
    factor, info = each(A.size(-1), step, (A.tril(), info))
    return factor, info[..., 0, 0].to(torch.int32)


@decomposes_unless_empty(aten.linalg_cholesky_ex.default)
def linalg_cholesky_ex(self: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """L with A = L @ Lᴴ, or its Lᴴ, and LAPACK's info."""
    factor, info = cholesky(self.mH if upper else self)
    return (factor.mH if upper else factor), info


@decomposes_unless_empty(aten.linalg_cholesky.default, aten.cholesky.default)
def linalg_cholesky(self: Tensor, upper: bool = False) -> Tensor:
    """L with A = L @ Lᴴ, or its Lᴴ; NaN where torch raises, of a matrix that is not positive definite."""
    factor, info = linalg_cholesky_ex(self, upper=upper)
    return torch.where(info[..., None, None] == 0, factor, torch.nan)


def squared(x: Tensor) -> Tensor:
    """|x|²."""
    return x.real * x.real + x.imag * x.imag if x.is_complex() else x * x


def reflection(column: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """v, tau and beta of the H = 1 - tau v vᴴ for which Hᴴ makes zero what is below row k, and beta what is there."""
    rows = indices(column, -2)
    alpha, tail = pick(column, -2, k), torch.where(rows > k, column, 0.0)
    rest = squared(tail).sum(-2, keepdim=True)
    length = torch.sqrt(squared(alpha) + rest)
    beta = torch.where((alpha.real if alpha.is_complex() else alpha) >= 0, -length, length)
    nothing = (rest == 0) & (alpha.imag == 0) if alpha.is_complex() else rest == 0
    tau = torch.where(nothing, 0.0, (beta - alpha) / torch.where(nothing, 1.0, beta))
    vector = torch.where(rows == k, 1.0, tail / torch.where(nothing, 1.0, alpha - beta))
    return vector, tau, torch.where(nothing, alpha, beta)


@decomposes_unless_empty(aten.geqrf.default)
def geqrf(self: Tensor) -> tuple[Tensor, Tensor]:
    """R with the vectors of Householder's reflections below its diagonal, and their factors, with LAPACK's signs."""

    def step(k: Tensor, A: Tensor, taus: Tensor) -> Tensors:
        column, rows, columns = pick(A, -1, k), indices(A, -2), indices(A, -1)
        vector, tau, beta = reflection(column, k)
        rest = A - tau.conj() * vector * torch.matmul(vector.mH, A)
        column = torch.where(rows < k, column, torch.where(rows == k, beta, vector))
        A = torch.where(columns > k, rest, torch.where(columns == k, column, A))
        return A, torch.where(indices(taus, -1) == k, tau.squeeze(-1), taus)

    packed, taus = each(shorter(self), step, (self, self.new_zeros((*self.shape[:-2], shorter(self)))))
    return packed, taus


def reflected(packed: Tensor, taus: Tensor, C: Tensor, adjoint: bool = False) -> Tensor:
    """H_1 … H_k @ C of the reflections that ``geqrf`` packs, or H_kᴴ … H_1ᴴ @ C."""

    def step(k: Tensor, C: Tensor, packed: Tensor, taus: Tensor) -> Tensors:
        k = k if adjoint else taus.size(-1) - 1 - k
        rows = indices(packed, -2)
        vector = torch.where(rows == k, 1.0, torch.where(rows > k, pick(packed, -1, k), 0.0))
        tau = pick(taus, -1, k).unsqueeze(-1)
        return (C - (tau.conj() if adjoint else tau) * vector * torch.matmul(vector.mH, C),)

    return each(taus.size(-1), step, (C,), (packed, taus))[0]


@decomposes_unless_empty(aten.linalg_qr.default)
def linalg_qr(A: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """Q and R with A = Q @ R; mode r leaves Q empty."""
    m = A.size(-2)
    packed, taus = geqrf(A)
    k = m if mode == "complete" else shorter(A)
    R = packed[..., :k, :].triu()
    return A.new_zeros((0,)) if mode == "r" else reflected(packed, taus, unit_matrix(A, m, k)), R


@decomposes_unless_empty(aten.linalg_householder_product.default)
def linalg_householder_product(input: Tensor, tau: Tensor) -> Tensor:
    """The first columns of the product of the reflections that ``geqrf`` packs."""
    return reflected(input, tau, unit_matrix(input, input.size(-2), input.size(-1)))


@decomposes_unless_empty(aten.ormqr.default)
def ormqr(self: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """Q @ input3 or input3 @ Q, Q or its adjoint being the product of the reflections."""
    if left:
        return reflected(self, input2, input3, transpose)
    return reflected(self, input2, input3.mH, not transpose).mH
