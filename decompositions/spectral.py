"""Eigenvalues, singular values and what is built on them, by Jacobi's rotations in float64.

A sweep is n - 1 rounds of n / 2 rotations at once, each round some thirty operators; 2 + log2 n sweeps converge
quadratically, to float64's rounding or near it. So the graph grows with n, which must be known and at most ``LARGEST``.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from fx_onnx.decompositions._empty import decomposes_unless_empty
from fx_onnx.decompositions.factorization import householder, known_size, reflect

aten = torch.ops.aten
LARGEST = 32


def _round(A: Tensor, V: Tensor, own: Tensor, partner: Tensor, side: Tensor) -> tuple[Tensor, Tensor]:
    """Rotations that make A zero between each axis and its partner, on both sides of A and on the columns of V.

    Column j of ``own`` and ``partner`` is the unit vector of the axis that becomes axis j, and of its partner.
    """
    columns = torch.matmul(A, own)
    diagonal = (columns * own).sum(-2, keepdim=True)
    off = (columns * partner).sum(-2, keepdim=True) * 2
    difference = torch.matmul(diagonal, torch.matmul(own.mT, partner)) - diagonal
    sign = difference.sgn()
    sign = torch.where(sign == 0, side, sign)
    length = torch.sqrt(difference * difference + off * off) + difference.abs()
    tangent = sign * off / length.clamp(min=1e-200)
    cosine = torch.rsqrt(tangent * tangent + 1)
    rotation = (own - partner * tangent) * cosine
    return torch.matmul(torch.matmul(rotation.mT, A), rotation), torch.matmul(V, rotation)


def _turned(M: Tensor) -> Tensor:
    """The columns in the order of the next round of a tournament, where each in the left half meets one in the right.

    The first stays, the others go round: along the left half and back along the right one.
    """
    h = M.size(-1) // 2
    if h == 1:
        return M
    return torch.cat([M[:, :1], M[:, h : h + 1], M[:, 1 : h - 1], M[:, h + 1 :], M[:, h - 1 : h]], -1)


def jacobi(A: Tensor) -> tuple[Tensor, Tensor]:
    """Ascending eigenvalues and eigenvectors of a symmetric matrix; an odd size gets a last eigenvalue above all."""
    n = known_size(A.size(-1))
    if n > LARGEST:
        raise NotImplementedError(f"eigenvalues of a matrix of size {n}: more than {LARGEST} would be a huge graph")
    if n < 2:
        return A.flatten(-2), torch.ones_like(A)
    size = n + n % 2
    if size > n:
        above = 1 + torch.sqrt((A * A).sum((-2, -1), keepdim=True))
        A = F.pad(A, (0, 1, 0, 1)) + F.pad(above, (n, 0, n, 0))
    h = size // 2
    eye = torch.eye(size, dtype=A.dtype, device=A.device)
    ones = torch.ones((1, h), dtype=A.dtype, device=A.device)
    own, partner = _turned(eye), _turned(torch.cat([eye[:, h:], eye[:, :h]], -1))
    side = _turned(torch.cat([ones, -ones], -1))
    V = eye.expand(A.shape)
    for _ in range((size - 1) * (2 + math.ceil(math.log2(size)))):
        A, V = _round(A, V, own, partner, side)
    values, places = A.diagonal(dim1=-2, dim2=-1).sort(-1)
    V = V.gather(-1, places.unsqueeze(-2).expand(V.shape))
    return values[..., :n], V[..., :n, :n]


def _wide(A: Tensor) -> Tensor:
    return A.to(torch.complex128) if A.is_complex() else A.double()


def _hermitian(half: Tensor) -> Tensor:
    """The whole matrix of a lower triangle; the imaginary part of a diagonal is not read."""
    whole = half + half.tril(-1).mH
    if not whole.is_complex():
        return whole
    imag = whole.imag
    return torch.complex(whole.real, imag.tril(-1) + imag.triu(1))


def _squares(A: Tensor) -> Tensor:
    squared = A.real * A.real + A.imag * A.imag if A.is_complex() else A * A
    return squared.sum(-2)


def eigen(A: Tensor) -> tuple[Tensor, Tensor]:
    """``jacobi``, also of a Hermitian matrix X + iY: the symmetric [[X, -Y], [Y, X]] has each of its eigenvalues twice.

    Of the two eigenvectors one is taken, which is right unless the eigenvalue is a multiple one of A too.
    """
    if not A.is_complex():
        return jacobi(A)
    n = known_size(A.size(-1))
    values, vectors = jacobi(torch.cat([torch.cat([A.real, -A.imag], -1), torch.cat([A.imag, A.real], -1)], -2))
    return values[..., ::2], torch.complex(vectors[..., :n, ::2], vectors[..., n:, ::2])


@decomposes_unless_empty(aten._linalg_eigh.default)
def _linalg_eigh(A: Tensor, UPLO: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:
    """Ascending eigenvalues and eigenvectors of the symmetric matrix of which A holds a triangle."""
    values, vectors = eigen(_hermitian(_wide(A).tril() if UPLO.upper() == "L" else _wide(A).triu().mH))
    vectors = vectors.to(A.dtype) if compute_v else A.new_zeros((0,))
    return values.to(A.dtype.to_real()), vectors


def svd(A: Tensor, full: bool) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and Vᴴ in float64: V diagonalizes Aᴴ @ A, and A @ V = Q @ R with a diagonal R."""
    m, n = known_size(A.size(-2)), known_size(A.size(-1))
    if m < n:
        U, S, Vh = svd(A.mH, full)
        return Vh.mH, S, U.mH
    A = _wide(A)
    V = eigen(torch.matmul(A.mH, A))[1].flip(-1)
    found = householder(torch.matmul(A, V))
    diagonal = found.R.diagonal(dim1=-2, dim2=-1)
    U = reflect(found.vectors, found.taus, m if full else n, A)
    size = diagonal.abs()
    if A.is_complex():
        signs = torch.where(size == 0, 1.0, diagonal / torch.where(size == 0, 1.0, size))
    else:
        signs = torch.where(diagonal < 0, -1.0, 1.0).to(A.dtype)
    U = torch.cat([U[..., :n] * signs.unsqueeze(-2), U[..., n:]], -1)
    return U, size, V.mH


@decomposes_unless_empty(aten._linalg_svd.default)
def _linalg_svd(
    A: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and Vᴴ with A = U @ diag(S) @ Vᴴ, S descending."""
    U, S, Vh = svd(A, full_matrices and compute_uv)
    if not compute_uv:
        return A.new_zeros((0,)), S.to(A.dtype.to_real()), A.new_zeros((0,))
    return U.to(A.dtype), S.to(A.dtype.to_real()), Vh.to(A.dtype)


def _pseudo_inverse(A: Tensor, atol: Tensor | float, rtol: Tensor | float) -> tuple[Tensor, Tensor, Tensor]:
    """The pseudo-inverse without singular values below the limit; which ones are above; all of them."""
    U, S, Vh = svd(A, False)
    largest = S.amax(-1, keepdim=True)

    def column(limit: Tensor | float) -> Tensor | float:
        return limit.unsqueeze(-1) if isinstance(limit, Tensor) and limit.dim() else limit

    limit = torch.maximum(largest * column(rtol), torch.zeros_like(largest) + column(atol))
    above = limit < S
    inverse = torch.where(above, 1 / torch.where(above, S, 1.0), 0.0)
    return torch.matmul(Vh.mH * inverse.unsqueeze(-2), U.mH), above, S


@decomposes_unless_empty(aten.linalg_pinv.atol_rtol_tensor)
def linalg_pinv(
    self: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False
) -> Tensor:
    """V @ diag(1 / S) @ Uᵀ over the singular values above max(atol, rtol * the largest)."""
    m, n = known_size(self.size(-2)), known_size(self.size(-1))
    if m == 0 or n == 0:
        return self.mH
    if hermitian:
        self = _hermitian(self.tril())
    smallest = torch.finfo(self.dtype).eps * max(m, n)
    relative: Tensor | float = smallest if rtol is None else rtol
    if rtol is None and atol is not None:
        relative = torch.where(atol > 0, 0.0, smallest)
    return _pseudo_inverse(self, 0.0 if atol is None else atol, relative)[0].to(self.dtype)


@decomposes_unless_empty(aten.linalg_lstsq.default)
def linalg_lstsq(
    self: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The X of least norm that makes A @ X - b smallest; the squares left over; rank; singular values."""
    m, n = known_size(self.size(-2)), known_size(self.size(-1))
    vector = b.dim() == self.dim() - 1
    B = _wide(b.unsqueeze(-1) if vector else b)
    rcond = torch.finfo(self.dtype).eps * max(m, n) if rcond is None else rcond
    inverse, above, S = _pseudo_inverse(self, 0.0, rcond)
    X = torch.matmul(inverse, B)
    left = torch.matmul(_wide(self), X) - B
    empty = self.new_zeros((0,))
    residuals = _squares(left).to(self.dtype.to_real()) if m > n and driver != "gelsy" else empty
    rank = empty.to(torch.int64) if driver == "gels" else above.sum(-1)
    singular = S.to(self.dtype.to_real()) if driver in ("gelsd", "gelss") else empty
    return (X.squeeze(-1) if vector else X).to(self.dtype), residuals, rank, singular


@decomposes_unless_empty(aten.linalg_matrix_exp.default)
def linalg_matrix_exp(self: Tensor) -> Tensor:
    """exp(A / 2^s)^(2^s), the inner one by Taylor's series to the dtype's rounding for a norm below 1/2.

    s is found at run time, up to 16; any further squaring is skipped.
    """
    norm = self.abs().sum(-2).amax(-1)[..., None, None] if self.size(-1) else self.new_ones((1, 1))
    squarings = torch.ceil(torch.log2(norm.clamp(min=1e-30))).clamp(min=-1, max=15) + 1
    A = self * torch.exp2(-squarings)
    eye = torch.eye(self.size(-1), dtype=self.dtype, device=self.device)
    order = 14 if self.dtype == torch.float64 else 9
    X = eye + A / order
    for k in reversed(range(1, order)):
        X = eye + torch.matmul(A, X) / k
    for k in range(16):
        X = torch.where(squarings > k, torch.matmul(X, X), X)
    return X
