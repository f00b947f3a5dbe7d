"""LU, Cholesky and QR factorizations, one step of whole-tensor arithmetic for each row: n steps for a size of n.

The size of the matrix must be known; batches may have any size. The accuracy is that of LAPACK's unblocked algorithms,
which these are: partial pivoting, right-looking Cholesky, Householder reflections.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fx_onnx.decompositions._empty import decomposes_unless_empty

aten = torch.ops.aten


def known_size(size: int) -> int:
    """The size of a matrix, which decides how many steps there are.

    Raises:
        NotImplementedError: it is symbolic.
    """
    if not isinstance(size, int):
        raise NotImplementedError(f"a matrix of the dynamic size {size} cannot be factorized: make that dim static")
    return size


class LU(NamedTuple):
    """L below the diagonal and U from it on, in one matrix; which row each row was; LAPACK's pivots and info."""

    packed: Tensor
    permutation: Tensor
    pivots: Tensor
    info: Tensor


def _pivot_size(x: Tensor) -> Tensor:
    """What LAPACK chooses the pivot by: the magnitude, of complex numbers the sum of those of the parts."""
    return x.real.abs() + x.imag.abs() if x.is_complex() else x.abs()


def lu(A: Tensor, pivot: bool = True) -> LU:
    """A[permutation] = L @ U, with the largest element of each column as pivot."""
    m, n = known_size(A.size(-2)), known_size(A.size(-1))
    rows = torch.arange(m, device=A.device)
    permutation = rows.expand(A.shape[:-1])
    pivots = torch.arange(1, 1 + min(m, n), device=A.device).expand((*A.shape[:-2], min(m, n)))
    places = []
    info = torch.zeros(A.shape[:-2], dtype=torch.int64, device=A.device)
    for k in range(min(m, n)):
        if pivot:
            place = _pivot_size(A[..., k:, k]).argmax(-1, keepdim=True) + k
            swap = torch.where(rows == k, place, torch.where(rows == place, k, rows))
            A = A.gather(-2, swap.unsqueeze(-1).expand(A.shape))
            permutation = permutation.gather(-1, swap)
            places.append(place + 1)
        diagonal = A[..., k, k]
        info = torch.where((info == 0) & (diagonal == 0), k + 1, info)
        divisor = torch.where(diagonal == 0, 1.0, diagonal)[..., None, None]
        factors = A[..., k + 1 :, k : k + 1] / divisor
        rest = A[..., k + 1 :, k + 1 :] - factors * A[..., k : k + 1, k + 1 :]
        A = torch.cat([A[..., : k + 1, :], torch.cat([A[..., k + 1 :, :k], factors, rest], -1)], -2)
    pivots = torch.cat(places, -1) if places else pivots
    return LU(A, permutation, pivots.to(torch.int32), info.to(torch.int32))


def determinant_sign(factors: LU) -> Tensor:
    """The sign of the permutation: -1 for an odd number of swaps."""
    straight = torch.arange(1, 1 + factors.pivots.size(-1), device=factors.pivots.device)
    swaps = (factors.pivots != straight).sum(-1)
    return (1 - 2 * (swaps % 2)).to(factors.packed.dtype)


@decomposes_unless_empty(aten.linalg_lu_factor_ex.default)
def linalg_lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """L and U in one matrix, LAPACK's pivots and info."""
    factors = lu(A, pivot)
    return factors.packed, factors.pivots, factors.info


def lower_upper(packed: Tensor) -> tuple[Tensor, Tensor]:
    """L with ones on its diagonal, and U."""
    m, n = known_size(packed.size(-2)), known_size(packed.size(-1))
    k = min(m, n)
    eye = torch.eye(m, k, dtype=packed.dtype, device=packed.device)
    return packed[..., :, :k].tril(-1) + eye, packed[..., :k, :].triu()


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
    rows = torch.arange(m, device=pivots.device)
    permutation = rows.expand((*pivots.shape[:-1], m))
    for k in range(known_size(pivots.size(-1))):
        place = pivots[..., k : k + 1].to(torch.int64) - 1
        swap = torch.where(rows == k, place, torch.where(rows == place, k, rows))
        permutation = permutation.gather(-1, swap)
    return permutation


@decomposes_unless_empty(aten.lu_unpack.default)
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """P, L and U out of a packed factorization; what is not asked for is empty."""
    empty = LU_data.new_zeros((0,))
    lower, upper = lower_upper(LU_data) if unpack_data else (empty, empty)
    if not unpack_pivots:
        return empty, lower, upper
    permutation = permutation_of(LU_pivots, known_size(LU_data.size(-2)))
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
    """L with A = L @ Lᴴ, from A's lower triangle, and LAPACK's info."""
    n = known_size(A.size(-1))
    columns = []
    info = torch.zeros(A.shape[:-2], dtype=torch.int64, device=A.device)
    for k in range(n):
        pivot = A[..., :1, :1]
        info = torch.where((info == 0) & ~(pivot[..., 0, 0].real > 0), k + 1, info)
        column = A[..., :, :1] / pivot.sqrt()
        columns.append(torch.nn.functional.pad(column, (0, 0, k, 0)))
        tail = column[..., 1:, :]
        A = A[..., 1:, 1:] - torch.matmul(tail, tail.mH)
    return (torch.cat(columns, -1) if columns else A), info.to(torch.int32)


@decomposes_unless_empty(aten.linalg_cholesky_ex.default)
def linalg_cholesky_ex(self: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """L with A = L @ Lᴴ, or its Lᴴ, and LAPACK's info."""
    factor, info = cholesky(self.mH if upper else self)
    return (factor.mH if upper else factor), info


@decomposes_unless_empty(aten.cholesky.default)
def cholesky_default(self: Tensor, upper: bool = False) -> Tensor:
    """L with A = L @ Lᴴ, or its Lᴴ."""
    return linalg_cholesky_ex(self, upper=upper)[0]


class Reflections(NamedTuple):
    """Householder's H_k = 1 - tau_k v_k v_kᴴ, v_k from row k on; and R = H_kᴴ … H_1ᴴ A."""

    vectors: list[Tensor]
    taus: list[Tensor]
    R: Tensor


def _squared(x: Tensor) -> Tensor:
    return x.real * x.real + x.imag * x.imag if x.is_complex() else x * x


def householder(A: Tensor) -> Reflections:
    """The reflections that make A upper triangular, with LAPACK's signs."""
    m, n = known_size(A.size(-2)), known_size(A.size(-1))
    vectors, taus = [], []
    for k in range(min(m, n)):
        alpha, tail = A[..., k : k + 1, k : k + 1], A[..., k + 1 :, k : k + 1]
        rest = _squared(tail).sum(-2, keepdim=True)
        length = torch.sqrt(_squared(alpha) + rest)
        beta = torch.where((alpha.real if alpha.is_complex() else alpha) >= 0, -length, length)
        nothing = (rest == 0) & (alpha.imag == 0) if alpha.is_complex() else rest == 0
        tau = torch.where(nothing, 0.0, (beta - alpha) / torch.where(nothing, 1.0, beta))
        vector = torch.cat([torch.ones_like(alpha), tail / torch.where(nothing, 1.0, alpha - beta)], -2)
        rows = A[..., k:, :]
        factor = tau.conj() if tau.is_complex() else tau
        A = torch.cat([A[..., :k, :], rows - factor * vector * torch.matmul(vector.mH, rows)], -2)
        vectors.append(vector)
        taus.append(tau)
    return Reflections(vectors, taus, A.triu())


def reflect(vectors: list[Tensor], taus: list[Tensor], columns: int, like: Tensor) -> Tensor:
    """The first columns of H_1 … H_k."""
    m = known_size(like.size(-2))
    eye = torch.eye(m, columns, dtype=like.dtype, device=like.device)
    Q = eye.expand((*like.shape[:-2], m, columns))
    for k in reversed(range(len(vectors))):
        rows = Q[..., k:, :]
        Q = torch.cat([Q[..., :k, :], rows - taus[k] * vectors[k] * torch.matmul(vectors[k].mH, rows)], -2)
    return Q


@decomposes_unless_empty(aten.linalg_qr.default)
def linalg_qr(A: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    """Q and R with A = Q @ R; mode r leaves Q empty."""
    m = known_size(A.size(-2))
    found = householder(A)
    k = m if mode == "complete" else min(m, known_size(A.size(-1)))
    if mode == "r":
        return A.new_zeros((0,)), found.R[..., :k, :]
    return reflect(found.vectors, found.taus, k, A), found.R[..., :k, :]


@decomposes_unless_empty(aten.geqrf.default)
def geqrf(self: Tensor) -> tuple[Tensor, Tensor]:
    """R with the reflections' vectors below its diagonal, and their factors."""
    found = householder(self)
    m, n = self.shape[-2:]
    if not found.vectors:
        return self, self.new_zeros((*self.shape[:-2], 0))
    tails = [torch.nn.functional.pad(v[..., 1:, :], (0, 0, k + 1, 0)) for k, v in enumerate(found.vectors)]
    below = torch.nn.functional.pad(torch.cat(tails, -1), (0, n - min(m, n)))
    return found.R + below, torch.cat([tau[..., 0] for tau in found.taus], -1)


def _unpacked(input: Tensor, tau: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """The vectors and factors that ``geqrf`` packs."""
    count = known_size(tau.size(-1))
    ones = torch.ones_like(input[..., :1, :1])
    vectors = [torch.cat([ones, input[..., k + 1 :, k : k + 1]], -2) for k in range(count)]
    return vectors, [tau[..., k : k + 1].unsqueeze(-1) for k in range(count)]


@decomposes_unless_empty(aten.linalg_householder_product.default)
def linalg_householder_product(input: Tensor, tau: Tensor) -> Tensor:
    """The first columns of the product of the reflections that ``geqrf`` packs."""
    return reflect(*_unpacked(input, tau), known_size(input.size(-1)), input)


@decomposes_unless_empty(aten.ormqr.default)
def ormqr(self: Tensor, input2: Tensor, input3: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """Q @ input3 or input3 @ Q, Q or its adjoint being the product of the reflections."""
    Q = reflect(*_unpacked(self, input2), known_size(self.size(-2)), self)
    Q = Q.mH if transpose else Q
    return torch.matmul(Q, input3) if left else torch.matmul(input3, Q)
