"""Eigenvalues, singular values and what is built on them, by Jacobi's rotations in float64.

A sweep is n rounds of n / 2 rotations at once, O(n³) operations; some log2 n + 4 sweeps converge, the last of them
quadratically, to float64's rounding. The rounds are a loop until a whole sweep has nothing left to do.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from fx_onnx.decompositions._empty_results import decomposes_unless_empty
from fx_onnx.decompositions._loops import Tensors, indices, until
from fx_onnx.decompositions._sizes import at_least, is_empty
from fx_onnx.decompositions.factorization import geqrf, reflected, shorter, squared, unit_matrix, wide
from fx_onnx.decompositions.registry import aten

NOTHING = 2.0**-47
"""What a rotation would remove and may stay, relative to what it is beside: some rounding errors of float64."""
MOST_SWEEPS = 40


def _partners(A: Tensor, turn: Tensor) -> Tensor:
    """Which column each is rotated with: i with j where i + j = turn modulo n, so that n turns are all pairs once."""
    return (turn - indices(A, -1)) % A.size(-1)


def _rotations(diagonal: Tensor, off: Tensor, partners: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine c and sine s of the rotations that make ``off`` zero between each axis i and its partner p.

    Column i becomes c_i * column i - s_i * column p; the angles are those of at most 45°. A column that is its own
    partner stays.
    """
    own = indices(partners, -1)
    difference = diagonal.index_select(-1, partners) - diagonal
    twice = torch.where(own == partners, 0.0, off * 2)
    length = difference.abs() + torch.sqrt(difference * difference + squared(twice))
    first = (difference > 0) | ((difference == 0) & (own < partners))
    tangent = twice.conj() / torch.where(first, 1.0, -1.0) / length.clamp(min=1e-200)
    cosine = torch.rsqrt(squared(tangent) + 1)
    return cosine, tangent * cosine


def _turned(x: Tensor, partners: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """The columns after the rotations."""
    return x * cosine.unsqueeze(-2) - x.index_select(-1, partners) * sine.unsqueeze(-2)


def _more(turn: Tensor, quiet: Tensor, A: Tensor, V: Tensor) -> Tensor:
    """Whether some pair was rotated in the last n rounds."""
    n = A.size(-1)
    return (quiet < n) & (turn < n * MOST_SWEEPS)


def _rotated(turn: Callable[..., Tensors], A: Tensor) -> tuple[Tensor, Tensor]:
    """A after turn upon turn, and the product of all rotations of its columns."""
    zero, V = torch.full((), 0), unit_matrix(A, A.size(-1), A.size(-1))
    return (A, V) if is_empty(A) else until(_more, turn, (zero, zero, A, V))[2:]  # type: ignore[return-value]


def jacobi(A: Tensor) -> tuple[Tensor, Tensor]:
    """Ascending eigenvalues and eigenvectors of a Hermitian matrix, to float64's rounding of the largest one."""

    def turn(turn: Tensor, quiet: Tensor, A: Tensor, V: Tensor) -> Tensors:
        partners = _partners(A, turn)
        diagonal = A.diagonal(dim1=-2, dim2=-1)
        diagonal = diagonal.real if A.is_complex() else diagonal
        off = A.index_select(-1, partners).diagonal(dim1=-2, dim2=-1)
        mirrored = off.index_select(-1, partners).conj()  # the same but for rounding, which would skew the rotations
        off = torch.where(indices(A, -1) < partners, off, mirrored)
        cosine, sine = _rotations(diagonal, off, partners)
        active = (off.abs() > diagonal.abs().amax(-1, keepdim=True) * NOTHING) & (partners != indices(A, -1))
        A = _turned(_turned(A, partners, cosine, sine).mT, partners, cosine, sine.conj()).mT
        return turn + 1, torch.where(active.any(), 0, quiet + 1), A, _turned(V, partners, cosine, sine)

    A, V = _rotated(turn, A)
    diagonal = A.diagonal(dim1=-2, dim2=-1)
    values, places = (diagonal.real if A.is_complex() else diagonal).sort(-1)
    return values, V.gather(-1, places.unsqueeze(-2).expand(V.shape))


def _hermitian(half: Tensor) -> Tensor:
    """The whole matrix of a lower triangle; the imaginary part of a diagonal is not read."""
    whole = half + half.tril(-1).mH
    if not whole.is_complex():
        return whole
    imag = whole.imag
    return torch.complex(whole.real, imag.tril(-1) + imag.triu(1))


@decomposes_unless_empty(aten._linalg_eigh.default)
def _linalg_eigh(A: Tensor, UPLO: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:
    """Ascending eigenvalues and eigenvectors of the symmetric matrix of which A holds a triangle."""
    values, vectors = jacobi(_hermitian(wide(A).tril() if UPLO.upper() == "L" else wide(A).triu().mH))
    vectors = vectors.to(A.dtype) if compute_v else A.new_zeros((0,))
    return values.to(A.dtype.to_real()), vectors


def _orthogonal(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A @ V with orthogonal columns, the lengths of these, descending, and V."""

    def turn(turn: Tensor, quiet: Tensor, A: Tensor, V: Tensor) -> Tensors:
        partners = _partners(A, turn)
        others = A.index_select(-1, partners)
        squares, off = squared(A).sum(-2), (A.conj() * others).sum(-2)
        cosine, sine = _rotations(squares, off, partners)
        smaller = torch.minimum(squares, squares.index_select(-1, partners))
        counts = smaller > squares.amax(-1, keepdim=True) * NOTHING**2
        beside = torch.sqrt(squares * squares.index_select(-1, partners)) * NOTHING
        active = counts & (off.abs() > beside) & (partners != indices(A, -1))
        A = A * cosine.unsqueeze(-2) - others * sine.unsqueeze(-2)
        return turn + 1, torch.where(active.any(), 0, quiet + 1), A, _turned(V, partners, cosine, sine)

    A, V = _rotated(turn, A)
    lengths, places = torch.sqrt(squared(A).sum(-2)).sort(-1, descending=True)
    places = places.unsqueeze(-2)
    return A.gather(-1, places.expand(A.shape)), lengths, V.gather(-1, places.expand(V.shape))


def svd(A: Tensor, full: bool) -> tuple[Tensor, Tensor, Tensor]:
    """U, S and Vᴴ in float64, by rotations of A's columns; the columns that are zero then, U's own complete.

    S is right to float64's rounding of the largest, U and V orthogonal to it.
    """
    m, n = A.shape[-2:]
    if isinstance(m, int) and isinstance(n, int) and m < n:
        U, S, Vh = svd(A.mH, full)
        return Vh.mH, S, U.mH
    k = shorter(A)
    W, lengths, V = _orthogonal(wide(A))
    packed, taus = geqrf(W)
    diagonal = packed.diagonal(dim1=-2, dim2=-1)
    phases = torch.where(diagonal == 0, 1.0, diagonal / torch.where(diagonal == 0, 1.0, diagonal.abs()))
    columns = m if full else k
    U = reflected(packed, taus, unit_matrix(W, m, columns)) * F.pad(phases, (0, columns - k), value=1.0).unsqueeze(-2)
    return U, lengths[..., :k], (V if full else V[..., :k]).mH


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
    if is_empty(self):
        return self.mH
    if hermitian:
        self = _hermitian(self.tril())
    smallest = torch.finfo(self.dtype).eps * at_least(*self.shape[-2:])
    relative: Tensor | float = smallest if rtol is None else rtol
    if rtol is None and atol is not None:
        relative = torch.where(atol > 0, 0.0, smallest)
    return _pseudo_inverse(self, 0.0 if atol is None else atol, relative)[0].to(self.dtype)


@decomposes_unless_empty(aten.linalg_lstsq.default)
def linalg_lstsq(
    self: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The X of least norm that makes A @ X - b smallest; the squares left over; rank; singular values."""
    m, n = self.shape[-2:]
    vector = b.dim() == self.dim() - 1
    B = wide(b.unsqueeze(-1) if vector else b)
    rcond = torch.finfo(self.dtype).eps * at_least(m, n) if rcond is None else rcond
    inverse, above, S = _pseudo_inverse(self, 0.0, rcond)
    X = torch.matmul(inverse, B)
    left = torch.matmul(wide(self), X) - B
    empty = self.new_zeros((0,))
    residuals = squared(left).sum(-2).to(self.dtype.to_real()) if m > n and driver != "gelsy" else empty
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
