"""Eigenvalues of matrices of any kind, by the shifted QR algorithm in float64.

A matrix is balanced and becomes a Hessenberg one, whose last eigenvalues are split off by sweeps of small reflections:
n steps of O(n²), and some two or three sweeps find an eigenvalue (of a real matrix, a pair), so that it is O(n⁴) in
all. What is negligible to the matrix's own dtype is dropped, so eigenvalues are as accurate as those of LAPACK, whose
balance, shifts and tests (gebal, lahqr) these are. torch promises no order; of small matrices it mostly is the same.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fx_onnx.decompositions._empty_results import decomposes_unless_empty
from fx_onnx.decompositions._loops import Tensors, indices, looped, pick, until
from fx_onnx.decompositions._sizes import is_empty
from fx_onnx.decompositions.factorization import pivot_size, reflection, squared, unit_matrix, wide
from fx_onnx.decompositions.registry import aten

TINY = torch.finfo(torch.float64).tiny
MOST_BALANCING = 100
PATIENCE = 10
"""After so many sweeps that split nothing off, one has an odd shift."""


def _balanced(A: Tensor) -> Tensors:
    """D⁻¹ A D and D, diagonal: powers of two with which each row is about as long as its column."""

    def step(k: Tensor, A: Tensor, D: Tensor, some: Tensor) -> Tensors:
        column, row = (
            torch.sqrt(squared(pick(A, -1, k)).sum(-2, True)),
            torch.sqrt(squared(pick(A, -2, k)).sum(-1, True)),
        )
        factor = torch.exp2(torch.ceil((torch.log2(row / column) - 1) / 2))
        better = column * factor + row / factor < 0.95 * (column + row)
        factor = torch.where(better, factor, 1.0)
        A = torch.where(indices(A, -1) == k, A * factor, A)
        A = torch.where(indices(A, -2) == k, A / factor, A)
        return A, torch.where(indices(D, -1) == k, D * factor, D), some | better.any()

    def turn(rounds: Tensor, A: Tensor, D: Tensor, some: Tensor) -> Tensors:
        return rounds + 1, *looped(A.size(-1), step, (A, D, some & False))

    def more(rounds: Tensor, A: Tensor, D: Tensor, some: Tensor) -> Tensor:
        return some & (rounds < MOST_BALANCING)

    start = (torch.full((), 0), A, unit_matrix(A, A.size(-1), A.size(-1)), torch.full((), True))
    return until(more, turn, start)[1:3]


def _turned(H: Tensor, Z: Tensor, vector: Tensor, tau: Tensor) -> Tensors:
    """Qᴴ H Q and Z Q of a reflection Q = 1 - tau v vᴴ."""
    H = H - tau.conj() * vector * torch.matmul(vector.mH, H)
    H = H - torch.matmul(H, vector) * (tau * vector.mH)
    return H, Z - torch.matmul(Z, vector) * (tau * vector.mH)


def _hessenberg(A: Tensor, Z: Tensor) -> Tensors:
    """QᴴAQ, which is zero below the first subdiagonal, and ZQ."""

    def step(k: Tensor, H: Tensor, Z: Tensor) -> Tensors:
        column = torch.where(indices(H, -2) > k, pick(H, -1, k), 0.0)
        vector, tau, _ = reflection(column, k + 1)
        return _turned(H, Z, vector, tau)

    H, Z = looped(A.size(-1) - 2, step, (A, Z))
    return H.triu(-1), Z


def _at(H: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """The element at a place of its own in each matrix; 0 outside."""
    return torch.where((indices(H, -2) == row) & (indices(H, -1) == column), H, 0.0).sum((-2, -1), keepdim=True)


class _Bands(NamedTuple):
    """Of each row k: H[k, k], H[k, k - 1] and H[k - 1, k]; the last two are 0 for the first row."""

    diagonal: Tensor
    below: Tensor
    above: Tensor


def _bands(H: Tensor) -> _Bands:
    rows, columns = indices(H, -2), indices(H, -1)
    below = torch.where(rows == columns + 1, H, 0.0).sum(-1, keepdim=True)
    above = torch.where(columns == rows + 1, H, 0.0).sum(-2).unsqueeze(-1)
    return _Bands(H.diagonal(dim1=-2, dim2=-1).unsqueeze(-1), below, above)


def _negligible(bands: _Bands, eps: float) -> Tensor:
    """Which rows have a subdiagonal element that may be taken for zero, after Ahues and Tisseur."""
    before = bands.diagonal.roll(1, -2)
    left, above, own = (pivot_size(x) for x in (bands.below, bands.above, bands.diagonal))
    apart = pivot_size(before - bands.diagonal)
    larger, smaller = torch.maximum(left, above), torch.minimum(left, above)
    most, least = torch.maximum(own, apart), torch.minimum(own, apart)
    sum_ = (most + larger).clamp(min=TINY)
    close = smaller * (larger / sum_) <= (eps * least * (most / sum_)).clamp(min=TINY)
    return (left <= TINY) | ((left <= eps * (pivot_size(before) + own)) & close)


def _real_shift(H: Tensor, high: Tensor, odd: Tensor) -> tuple[Tensor, Tensor]:
    """Two shifts re ± i im: the eigenvalues of the last two rows, or twice the one that is nearer the last number."""
    a, b = _at(H, high - 1, high - 1), _at(H, high - 1, high)
    c, d = _at(H, high, high - 1), _at(H, high, high)
    scale = c.abs() + _at(H, high - 1, high - 2).abs()
    corner = 0.75 * scale + d
    a, d = torch.where(odd, corner, a), torch.where(odd, corner, d)
    b, c = torch.where(odd, -0.4375 * scale, b), torch.where(odd, scale, c)
    half = (a + d) / 2
    square = (a - d) * (a - d) / 4 + b * c
    root = torch.sqrt(square.abs())
    nearer = torch.where((half + root - d).abs() <= (half - root - d).abs(), half + root, half - root)
    return torch.where(square > 0, nearer, half), torch.where(square > 0, 0.0, root)


def _complex_shift(H: Tensor, high: Tensor, odd: Tensor) -> Tensor:
    """The eigenvalue of the last two rows that is nearer the last number."""
    a, d = _at(H, high - 1, high - 1), _at(H, high, high)
    product = _at(H, high - 1, high) * _at(H, high, high - 1)
    half = (a - d) / 2
    root = torch.sqrt(half * half + product)
    root = torch.where((half * root.conj()).real < 0, -root, root)
    below = half + root
    shift = torch.where(below == 0, d, d - product / torch.where(below == 0, 1.0, below))
    return torch.where(odd, d + 0.75 * _at(H, high, high - 1).abs(), shift)


def _started(H: Tensor, bands: _Bands, low: Tensor, high: Tensor, odd: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Where a sweep starts, and the column that it starts with: that of the shifted H, of a real one shifted twice.

    It starts below ``low`` where two elements in succession are so small that their product is negligible.
    """
    diagonal, below, above = bands
    under, after = below.roll(-1, -2), diagonal.roll(-1, -2)
    bound = pivot_size(diagonal) + pivot_size(after)
    if H.is_complex():
        vector = (diagonal - _complex_shift(H, high, odd), under, torch.zeros_like(under))
    else:
        re, im = _real_shift(H, high, odd)
        first = (diagonal - re) * (diagonal - re) + im * im + above.roll(-1, -2) * under
        vector = (first, under * (diagonal + after - 2 * re), under * below.roll(-2, -2))
        bound = bound + diagonal.roll(1, -2).abs()
    sizes = [pivot_size(x) for x in vector]
    small = pivot_size(below) * (sizes[1] + sizes[2]) <= eps * sizes[0] * bound
    rows = indices(H, -2)
    inside = (rows > low) & (rows <= high - (1 if H.is_complex() else 2))
    start = torch.where(inside & small, rows, low).amax(-2, keepdim=True)
    column = torch.zeros_like(diagonal)
    for i, x in enumerate(vector):
        column = torch.where(rows == start + i, x.roll(i, -2), column)
    return start, column / pivot_size(column).sum(-2, keepdim=True).clamp(min=TINY)


def _chased(H: Tensor, Z: Tensor, low: Tensor, high: Tensor, column: Tensor) -> Tensors:
    """A sweep of the rows from ``low`` to ``high``: reflections of two rows or three."""
    reach = 1 if H.is_complex() else 2

    def step(k: Tensor, H: Tensor, Z: Tensor, low: Tensor, high: Tensor, first: Tensor) -> Tensors:
        rows, columns = indices(H, -2), indices(H, -1)
        before = (k - 1).clamp(min=0)
        active = (low <= k) & (k < high)
        column = torch.where(low == k, first, pick(H, -1, before))
        column = torch.where(active & (rows >= k) & (rows <= high) & (rows <= k + reach), column, 0.0)
        vector, tau, _ = reflection(column, k)
        H, Z = _turned(H, Z, vector, tau)
        return torch.where(active & (columns == k - 1) & (rows > k), 0.0, H), Z

    return looped(H.size(-1) - 1, step, (H, Z), (low, high, column))


def _more(rounds: Tensor, H: Tensor, Z: Tensor, high: Tensor, idle: Tensor) -> Tensor:
    return (high > 0).any() & (rounds < 30 * H.size(-1) + 300)


def schur(A: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """T and Z with A Z = Z T: T is upper triangular, of a real A but for blocks of two rows on the diagonal."""

    def turn(rounds: Tensor, H: Tensor, Z: Tensor, high: Tensor, idle: Tensor) -> Tensors:
        rows, columns = indices(H, -2), indices(H, -1)
        low = torch.where(_negligible(_bands(H), eps) & (rows <= high), rows, 0).amax(-2, keepdim=True)
        H = torch.where((rows == low) & (columns == low - 1), 0.0, H)
        done = low >= high - (0 if H.is_complex() else 1)
        start, column = _started(H, _bands(H), low, high, (idle > 0) & (idle % PATIENCE == 0), eps)
        H, Z = _chased(H, Z, start, torch.where(done, start, high), column)
        return rounds + 1, H, Z, torch.where(done, low - 1, high), torch.where(done, 0, idle + 1)

    H, Z = _hessenberg(*_balanced(A))
    high = torch.full((*A.shape[:-2], 1, 1), A.size(-1) - 1, dtype=torch.int64, device=A.device)
    _, T, Z, _, _ = until(_more, turn, (torch.full((), 0), H, Z, high, torch.zeros_like(high)))
    return T, Z


def _triangular(T: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
    """A real Schur form's blocks of two rows made triangular, in complex numbers, the positive imaginary part first."""

    def step(k: Tensor, T: Tensor, Z: Tensor) -> Tensors:
        rows = indices(T, -2)
        a, b, c, d = (_at(T, k + i, k + j).real for i in (0, 1) for j in (0, 1))
        half = (a - d) / 2
        square = half * half + b * c
        root = torch.sqrt(square.abs())
        real = torch.where(square >= 0, torch.where(half < 0, -root, root), 0.0)
        shift = torch.complex(half + real, torch.where(square < 0, root, 0.0))  # eigenvalue - d
        column = torch.where(rows == k, shift, torch.where(rows == k + 1, torch.complex(c, torch.zeros_like(c)), 0.0))
        vector, tau, _ = reflection(torch.where(c == 0, 0.0, column), k)
        T, Z = _turned(T, Z, vector, tau)
        return torch.where((rows == k + 1) & (indices(T, -1) == k), 0.0, T), Z

    return looped(T.size(-1) - 1, step, (wide(T, True), wide(Z, True)))  # type: ignore[return-value]


def _vectors(T: Tensor) -> Tensor:
    """The eigenvectors of an upper triangular matrix, each with a 1 on the diagonal."""

    def step(k: Tensor, X: Tensor, T: Tensor) -> Tensors:
        i = T.size(-1) - 1 - k
        row, diagonal = pick(T, -2, i), T.diagonal(dim1=-2, dim2=-1).unsqueeze(-2)
        strict = torch.where(indices(T, -1) > i, row, 0.0)
        apart = pick(diagonal, -1, i) - diagonal
        least = (T.abs().amax((-2, -1), keepdim=True) * torch.finfo(torch.float64).eps).clamp(min=TINY)
        apart = torch.where(apart.abs() < least, least, apart)
        found = torch.where(indices(T, -1) > i, -torch.matmul(strict, X) / apart, pick(X, -2, i))
        return (torch.where(indices(X, -2) == i, found, X),)

    return looped(T.size(-1), step, (unit_matrix(T, T.size(-1), T.size(-1)),), (T,))[0]


def _triangle(A: Tensor) -> tuple[Tensor, Tensor]:
    """T and Z with A Z = Z T, T being upper triangular, in complex numbers of float64."""
    if is_empty(A):
        return wide(A, True), wide(A, True)
    T, Z = schur(wide(A), torch.finfo(A.dtype).eps)
    return (T, Z) if A.is_complex() else _triangular(T, Z)


@decomposes_unless_empty(aten.linalg_eig.default)
def linalg_eig(self: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, and eigenvectors of length 1 whose largest number is real."""
    T, Z = _triangle(self)
    values, vectors = T.diagonal(dim1=-2, dim2=-1), Z
    if not is_empty(self):
        vectors = torch.matmul(Z, _vectors(T))
        sizes = vectors.abs()
        largest = vectors.gather(-2, sizes.argmax(-2, keepdim=True))
        vectors = vectors * (largest.conj() / largest.abs()) / torch.sqrt((sizes * sizes).sum(-2, keepdim=True))
    dtype = self.dtype.to_complex()
    return values.to(dtype), vectors.to(dtype)


@decomposes_unless_empty(aten.linalg_eigvals.default, aten._linalg_eigvals.default)
def linalg_eigvals(self: Tensor) -> Tensor:
    """Eigenvalues, in the order of their places on the diagonal to which sweeps bring them."""
    return _triangle(self)[0].diagonal(dim1=-2, dim2=-1).to(self.dtype.to_complex())
