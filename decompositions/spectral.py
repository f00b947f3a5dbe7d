"""Eigenvalues of Hermitian matrices, singular values and functions of them, by Jacobi rotations in float64.

A round rotates n / 2 pairs of columns at once, and a sweep of n rounds rotates every pair once: O(n³) operations. About
log2 n + 4 sweeps converge to float64's rounding, the last ones quadratically. The rounds are a loop that ends after a
whole sweep without a rotation. Source: Golub and Van Loan, Matrix Computations, 8.5 and 8.6.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from fx_onnx.decompositions._empty_results import decomposes_unless_empty
from fx_onnx.decompositions._loops import Tensors, indices_along, while_loop
from fx_onnx.decompositions._sizes import at_least, is_empty
from fx_onnx.decompositions.factorization import (
    apply_reflections,
    batched_eye,
    diagonal_length,
    geqrf,
    squared_magnitude,
    to_float64,
)
from fx_onnx.decompositions.registry import aten, decomposes

NEGLIGIBLE = 2.0**-47
"""A smaller off-diagonal element, relative to the diagonal, is not rotated: it is a few rounding errors of float64."""
MAX_SWEEPS = 40


def _partners(A: Tensor, round_index: Tensor) -> Tensor:
    """Returns the column with which each column is rotated in a round.

    Columns i and j are partners in the round with i + j = round_index modulo n, so n rounds visit every pair once.
    """
    return (round_index - indices_along(A, -1)) % A.size(-1)


def _rotations(diagonal: Tensor, off: Tensor, partners: Tensor) -> tuple[Tensor, Tensor]:
    """Returns cosine c and sine s of the rotations that make ``off``, between each axis i and its partner p, zero.

    Column i becomes c_i * column i - s_i * column p. The angle is at most 45°. A column that is its own partner does
    not change.
    """
    own = indices_along(partners, -1)
    difference = diagonal.index_select(-1, partners) - diagonal
    twice = torch.where(own == partners, 0.0, off * 2)
    length = difference.abs() + torch.sqrt(difference * difference + squared_magnitude(twice))
    first = (difference > 0) | ((difference == 0) & (own < partners))
    tangent = twice.conj() / torch.where(first, 1.0, -1.0) / length.clamp(min=1e-200)
    cosine = torch.rsqrt(squared_magnitude(tangent) + 1)
    return cosine, tangent * cosine


def _rotate_columns(x: Tensor, partners: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Returns the columns after the rotations."""
    return x * cosine.unsqueeze(-2) - x.index_select(-1, partners) * sine.unsqueeze(-2)


def _is_unfinished(round_index: Tensor, idle_rounds: Tensor, A: Tensor, V: Tensor) -> Tensor:
    """Returns whether a pair was rotated in the last n rounds, and the limit of sweeps is not reached."""
    n = A.size(-1)
    return (idle_rounds < n) & (round_index < n * MAX_SWEEPS)


def _run_rounds(rotate_pairs: Callable[..., Tensors], A: Tensor) -> tuple[Tensor, Tensor]:
    """Runs rounds until a sweep has no rotation; returns A after them, and the product of all rotations."""
    zero, V = torch.full((), 0), batched_eye(A, A.size(-1), A.size(-1))
    return (A, V) if is_empty(A) else while_loop(_is_unfinished, rotate_pairs, (zero, zero, A, V))[2:]  # type: ignore[return-value]


def jacobi_eigh(A: Tensor) -> tuple[Tensor, Tensor]:
    """Returns ascending eigenvalues and eigenvectors of a Hermitian matrix, exact to a rounding of the largest one."""

    def rotate_pairs(round_index: Tensor, idle_rounds: Tensor, A: Tensor, V: Tensor) -> Tensors:
        partners = _partners(A, round_index)
        diagonal = A.diagonal(dim1=-2, dim2=-1)
        diagonal = diagonal.real if A.is_complex() else diagonal
        off = A.index_select(-1, partners).diagonal(dim1=-2, dim2=-1)
        # The mirrored elements are equal up to rounding, but both columns of a pair must be rotated by the same angle.
        mirrored = off.index_select(-1, partners).conj()
        off = torch.where(indices_along(A, -1) < partners, off, mirrored)
        cosine, sine = _rotations(diagonal, off, partners)
        active = (off.abs() > diagonal.abs().amax(-1, keepdim=True) * NEGLIGIBLE) & (partners != indices_along(A, -1))
        A = _rotate_columns(_rotate_columns(A, partners, cosine, sine).mT, partners, cosine, sine.conj()).mT
        return (
            round_index + 1,
            torch.where(active.any(), 0, idle_rounds + 1),
            A,
            _rotate_columns(V, partners, cosine, sine),
        )

    A, V = _run_rounds(rotate_pairs, A)
    diagonal = A.diagonal(dim1=-2, dim2=-1)
    values, order = (diagonal.real if A.is_complex() else diagonal).sort(-1)
    return values, V.gather(-1, order.unsqueeze(-2).expand(V.shape))


def _hermitian(half: Tensor) -> Tensor:
    """Returns the Hermitian matrix with a given lower triangle; the imaginary part of the diagonal is ignored."""
    whole = half + half.tril(-1).mH
    if not whole.is_complex():
        return whole
    imag = whole.imag
    return torch.complex(whole.real, imag.tril(-1) + imag.triu(1))


@decomposes_unless_empty(aten._linalg_eigh.default)
def _linalg_eigh(A: Tensor, UPLO: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:
    """Returns ascending eigenvalues and the eigenvectors of a Hermitian matrix, one triangle of which is in A."""
    values, vectors = jacobi_eigh(_hermitian(to_float64(A).tril() if UPLO.upper() == "L" else to_float64(A).triu().mH))
    vectors = vectors.to(A.dtype) if compute_v else A.new_zeros((0,))
    return values.to(A.dtype.to_real()), vectors


def _one_sided_jacobi(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns A @ V with orthogonal columns, their lengths in descending order, and V.

    Source: Hestenes, Inversion of Matrices by Biorthogonalization, 1958: the one-sided Jacobi method.
    """

    def rotate_pairs(round_index: Tensor, idle_rounds: Tensor, A: Tensor, V: Tensor) -> Tensors:
        partners = _partners(A, round_index)
        others = A.index_select(-1, partners)
        squares, off = squared_magnitude(A).sum(-2), (A.conj() * others).sum(-2)
        cosine, sine = _rotations(squares, off, partners)
        smaller = torch.minimum(squares, squares.index_select(-1, partners))
        large_enough = smaller > squares.amax(-1, keepdim=True) * NEGLIGIBLE**2
        limit = torch.sqrt(squares * squares.index_select(-1, partners)) * NEGLIGIBLE
        active = large_enough & (off.abs() > limit) & (partners != indices_along(A, -1))
        A = A * cosine.unsqueeze(-2) - others * sine.unsqueeze(-2)
        return (
            round_index + 1,
            torch.where(active.any(), 0, idle_rounds + 1),
            A,
            _rotate_columns(V, partners, cosine, sine),
        )

    A, V = _run_rounds(rotate_pairs, A)
    lengths, order = torch.sqrt(squared_magnitude(A).sum(-2)).sort(-1, descending=True)
    order = order.unsqueeze(-2)
    return A.gather(-1, order.expand(A.shape)), lengths, V.gather(-1, order.expand(V.shape))


def svd(A: Tensor, full: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Returns U, S and Vᴴ in float64, by one-sided Jacobi rotations of A's columns.

    The rotated columns are U times S. A QR factorization of them gives U. It also completes U where a rotated column is
    zero, and adds the remaining columns if ``full``. S is accurate to float64's rounding of the largest singular value;
    U and V are orthogonal to the same accuracy.
    """
    m, n = A.shape[-2:]
    if isinstance(m, int) and isinstance(n, int) and m < n:
        U, S, Vh = svd(A.mH, full)
        return Vh.mH, S, U.mH
    k = diagonal_length(A)
    W, lengths, V = _one_sided_jacobi(to_float64(A))
    packed, taus = geqrf(W)
    diagonal = packed.diagonal(dim1=-2, dim2=-1)
    phases = torch.where(diagonal == 0, 1.0, diagonal / torch.where(diagonal == 0, 1.0, diagonal.abs()))
    columns = m if full else k
    U = apply_reflections(packed, taus, batched_eye(W, m, columns))
    U = U * F.pad(phases, (0, columns - k), value=1.0).unsqueeze(-2)
    return U, lengths[..., :k], (V if full else V[..., :k]).mH


@decomposes_unless_empty(aten._linalg_svd.default)
def _linalg_svd(
    A: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns U, S and Vᴴ with A = U @ diag(S) @ Vᴴ, S in descending order."""
    U, S, Vh = svd(A, full_matrices and compute_uv)
    if not compute_uv:
        return A.new_zeros((0,)), S.to(A.dtype.to_real()), A.new_zeros((0,))
    return U.to(A.dtype), S.to(A.dtype.to_real()), Vh.to(A.dtype)


@decomposes_unless_empty(aten.linalg_matrix_sqrth.default)
def linalg_matrix_sqrth(self: Tensor) -> Tensor:
    """Returns V @ diag(√λ) @ Vᴴ of the lower triangle of a Hermitian matrix; eigenvalues below 0 count as 0."""
    values, vectors = jacobi_eigh(_hermitian(to_float64(self).tril()))
    roots = values.clamp(min=0.0).sqrt()
    return torch.matmul(vectors * roots.unsqueeze(-2), vectors.mH).to(self.dtype)


@decomposes_unless_empty(aten.linalg_polar.default)
def linalg_polar(A: Tensor) -> tuple[Tensor, Tensor]:
    """Returns U with orthonormal columns and a Hermitian H, A = U @ H: they are U Vᴴ and V S Vᴴ of the SVD."""
    U, S, Vh = svd(A, False)
    return torch.matmul(U, Vh).to(A.dtype), torch.matmul(Vh.mH * S.unsqueeze(-2), Vh).to(A.dtype)


def _pseudo_inverse(A: Tensor, atol: Tensor | float, rtol: Tensor | float) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the pseudo-inverse, whether each singular value is above the limit, and the singular values.

    The limit is max(atol, rtol * the largest singular value); values up to it count as zero.
    """
    U, S, Vh = svd(A, False)
    above = _is_above(S, atol, rtol)
    inverse = torch.where(above, 1 / torch.where(above, S, 1.0), 0.0)
    return torch.matmul(Vh.mH * inverse.unsqueeze(-2), U.mH), above, S


def _is_above(S: Tensor, atol: Tensor | float, rtol: Tensor | float) -> Tensor:
    """Returns whether each singular value is above max(atol, rtol * the largest singular value)."""
    largest = S.amax(-1, keepdim=True)

    def column(limit: Tensor | float) -> Tensor | float:
        return limit.unsqueeze(-1) if isinstance(limit, Tensor) and limit.dim() else limit

    return torch.maximum(largest * column(rtol), torch.zeros_like(largest) + column(atol)) < S


def _limits(
    A: Tensor, atol: Tensor | float | None, rtol: Tensor | float | None
) -> tuple[Tensor | float, Tensor | float]:
    """Returns the limits below which singular values count as zero, and the defaults of those that are not given."""
    if rtol is None:
        rtol = torch.finfo(A.dtype).eps * at_least(*A.shape[-2:])
        if atol is not None:
            rtol = torch.where(atol > 0, 0.0, rtol) if isinstance(atol, Tensor) else 0.0 if atol > 0 else rtol
    return 0.0 if atol is None else atol, rtol


@decomposes(aten.linalg_matrix_rank.atol_rtol_tensor, aten.linalg_matrix_rank.atol_rtol_float)
def linalg_matrix_rank(
    input: Tensor,
    *,
    atol: Tensor | float | None = None,
    rtol: Tensor | float | None = None,
    hermitian: bool = False,
) -> Tensor:
    """Returns how many singular values are above max(atol, rtol * the largest)."""
    S: Tensor = torch.linalg.eigvalsh(input).abs() if hermitian else torch.linalg.svdvals(input)
    if is_empty(S):
        return S.sum(-1, dtype=torch.int64)
    return _is_above(S.to(torch.float64), *_limits(input, atol, rtol)).sum(-1)


@decomposes_unless_empty(aten.linalg_pinv.atol_rtol_tensor)
def linalg_pinv(
    self: Tensor, *, atol: Tensor | None = None, rtol: Tensor | None = None, hermitian: bool = False
) -> Tensor:
    """Returns V @ diag(1 / S) @ Uᴴ over the singular values above max(atol, rtol * the largest)."""
    if is_empty(self):
        return self.mH
    if hermitian:
        self = _hermitian(self.tril())
    return _pseudo_inverse(self, *_limits(self, atol, rtol))[0].to(self.dtype)


@decomposes_unless_empty(aten.linalg_lstsq.default, "fx_onnx::lstsq")
def linalg_lstsq(
    self: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the X of least norm that minimizes |A @ X - b|, the squared residuals, the rank and the singular values.

    Each of the last three is empty for the drivers that do not compute it.
    """
    m, n = self.shape[-2:]
    vector = b.dim() == self.dim() - 1
    B = to_float64(b.unsqueeze(-1) if vector else b)
    rcond = torch.finfo(self.dtype).eps * at_least(m, n) if rcond is None else rcond
    inverse, above, S = _pseudo_inverse(self, 0.0, rcond)
    X = torch.matmul(inverse, B)
    left = torch.matmul(to_float64(self), X) - B
    empty = self.new_zeros((0,))
    residuals = (  # torch keeps the axis of columns here, for a vector too
        squared_magnitude(left).sum(-2).to(self.dtype.to_real()) if driver not in (None, "gelsy") and m > n else empty
    )
    rank = empty.to(torch.int64) if driver == "gels" else above.sum(-1)
    singular = S.to(self.dtype.to_real()) if driver in ("gelsd", "gelss") else empty
    return (X.squeeze(-1) if vector else X).to(self.dtype), residuals, rank, singular


@decomposes_unless_empty(aten.linalg_matrix_exp.default)
def linalg_matrix_exp(self: Tensor) -> Tensor:
    """Returns the matrix exponential, as exp(A / 2^s)^(2^s).

    The inner exponential is a Taylor series, accurate to the dtype's rounding for a norm below 1/2. The number s of
    squarings is computed at run time and is at most 16. The graph has 16 steps; the steps after s change nothing.
    Source: scaling and squaring, Golub and Van Loan, Matrix Computations, 9.3.
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
