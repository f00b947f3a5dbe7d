"""Eigenvalues of general matrices, by the implicitly shifted QR algorithm in float64.

The matrix is balanced and reduced to Hessenberg form. Sweeps of small Householder reflections then split off the last
eigenvalue, or the last two of a real matrix. The reduction and each sweep take n steps of O(n²), and two or three
sweeps find an eigenvalue, so the algorithm is O(n⁴) in all. Elements that are negligible in the matrix's own dtype are
set to zero. The eigenvalues are as accurate as LAPACK's, because balancing, shifts and tests are those of gebal and
lahqr. torch defines no order of the eigenvalues; for small matrices the order mostly equals torch's.

Source: Golub and Van Loan, Matrix Computations, 7.5.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fx_onnx.decompositions._empty_results import decomposes_unless_empty
from fx_onnx.decompositions._loops import Tensors, indices_along, rolled_for_loop, slice_at, while_loop
from fx_onnx.decompositions._sizes import is_empty
from fx_onnx.decompositions.factorization import (
    batched_eye,
    householder_reflection,
    pivot_magnitude,
    squared_magnitude,
    to_float64,
)
from fx_onnx.decompositions.registry import aten

TINY = torch.finfo(torch.float64).tiny
MAX_BALANCING_ROUNDS = 100
EXCEPTIONAL_SHIFT_PERIOD = 10
"""After this many sweeps without a split, one sweep uses an exceptional shift, because the sweeps could cycle."""


def _balance(A: Tensor) -> Tensors:
    """Returns D⁻¹ A D and D, a diagonal matrix of powers of two that makes each row as long as its column, or nearly.

    Source: LAPACK gebal.
    """

    def step(k: Tensor, A: Tensor, D: Tensor, changed: Tensor) -> Tensors:
        column = torch.sqrt(squared_magnitude(slice_at(A, -1, k)).sum(-2, True))
        row = torch.sqrt(squared_magnitude(slice_at(A, -2, k)).sum(-1, True))
        factor = torch.exp2(torch.ceil((torch.log2(row / column) - 1) / 2))
        better = column * factor + row / factor < 0.95 * (column + row)
        factor = torch.where(better, factor, 1.0)
        A = torch.where(indices_along(A, -1) == k, A * factor, A)
        A = torch.where(indices_along(A, -2) == k, A / factor, A)
        return A, torch.where(indices_along(D, -1) == k, D * factor, D), changed | better.any()

    def sweep_once(rounds: Tensor, A: Tensor, D: Tensor, changed: Tensor) -> Tensors:
        return rounds + 1, *rolled_for_loop(A.size(-1), step, (A, D, changed & False))

    def is_unbalanced(rounds: Tensor, A: Tensor, D: Tensor, changed: Tensor) -> Tensor:
        return changed & (rounds < MAX_BALANCING_ROUNDS)

    start = (torch.full((), 0), A, batched_eye(A, A.size(-1), A.size(-1)), torch.full((), True))
    return while_loop(is_unbalanced, sweep_once, start)[1:3]


def _reflect(H: Tensor, Z: Tensor, vector: Tensor, tau: Tensor) -> Tensors:
    """Returns Qᴴ H Q and Z Q for the reflection Q = 1 - tau v vᴴ."""
    H = H - tau.conj() * vector * torch.matmul(vector.mH, H)
    H = H - torch.matmul(H, vector) * (tau * vector.mH)
    return H, Z - torch.matmul(Z, vector) * (tau * vector.mH)


def _hessenberg(A: Tensor, Z: Tensor) -> Tensors:
    """Returns Qᴴ A Q, which is zero below the first subdiagonal, and Z Q."""

    def step(k: Tensor, H: Tensor, Z: Tensor) -> Tensors:
        column = torch.where(indices_along(H, -2) > k, slice_at(H, -1, k), 0.0)
        vector, tau, _ = householder_reflection(column, k + 1)
        return _reflect(H, Z, vector, tau)

    H, Z = rolled_for_loop(A.size(-1) - 2, step, (A, Z))
    return H.triu(-1), Z


def _element_at(H: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Returns the element of each matrix at its own row and column, or 0 outside the matrix."""
    here = (indices_along(H, -2) == row) & (indices_along(H, -1) == column)
    return torch.where(here, H, 0.0).sum((-2, -1), keepdim=True)


class _Bands(NamedTuple):
    """For each row k: H[k, k], H[k, k - 1] and H[k - 1, k]; the last two are 0 for the first row."""

    diagonal: Tensor
    below: Tensor
    above: Tensor


def _bands(H: Tensor) -> _Bands:
    """Returns the diagonal and its two neighbours as columns."""
    rows, columns = indices_along(H, -2), indices_along(H, -1)
    below = torch.where(rows == columns + 1, H, 0.0).sum(-1, keepdim=True)
    above = torch.where(columns == rows + 1, H, 0.0).sum(-2).unsqueeze(-1)
    return _Bands(H.diagonal(dim1=-2, dim2=-1).unsqueeze(-1), below, above)


def _negligible(bands: _Bands, eps: float) -> Tensor:
    """Returns which rows have a subdiagonal element that counts as zero.

    Source: Ahues and Tisseur, A New Deflation Criterion for the QR Algorithm, 1997 (LAPACK Working Note 122).
    """
    before = bands.diagonal.roll(1, -2)
    left, above, own = (pivot_magnitude(x) for x in (bands.below, bands.above, bands.diagonal))
    apart = pivot_magnitude(before - bands.diagonal)
    larger, smaller = torch.maximum(left, above), torch.minimum(left, above)
    most, least = torch.maximum(own, apart), torch.minimum(own, apart)
    sum_ = (most + larger).clamp(min=TINY)
    close = smaller * (larger / sum_) <= (eps * least * (most / sum_)).clamp(min=TINY)
    return (left <= TINY) | ((left <= eps * (pivot_magnitude(before) + own)) & close)


def _real_shift(H: Tensor, high: Tensor, exceptional: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the two shifts re ± i im of a real matrix.

    They are the eigenvalues of the last two rows and columns if these are complex. If these are real, both shifts are
    the one that is nearer to the last diagonal element.
    """
    a, b = _element_at(H, high - 1, high - 1), _element_at(H, high - 1, high)
    c, d = _element_at(H, high, high - 1), _element_at(H, high, high)
    scale = c.abs() + _element_at(H, high - 1, high - 2).abs()
    corner = 0.75 * scale + d
    a, d = torch.where(exceptional, corner, a), torch.where(exceptional, corner, d)
    b, c = torch.where(exceptional, -0.4375 * scale, b), torch.where(exceptional, scale, c)
    half = (a + d) / 2
    square = (a - d) * (a - d) / 4 + b * c
    root = torch.sqrt(square.abs())
    nearer = torch.where((half + root - d).abs() <= (half - root - d).abs(), half + root, half - root)
    return torch.where(square > 0, nearer, half), torch.where(square > 0, 0.0, root)


def _complex_shift(H: Tensor, high: Tensor, exceptional: Tensor) -> Tensor:
    """Returns the eigenvalue of the last two rows and columns that is nearer to the last diagonal element."""
    a, d = _element_at(H, high - 1, high - 1), _element_at(H, high, high)
    product = _element_at(H, high - 1, high) * _element_at(H, high, high - 1)
    half = (a - d) / 2
    root = torch.sqrt(half * half + product)
    root = torch.where((half * root.conj()).real < 0, -root, root)
    below = half + root
    shift = torch.where(below == 0, d, d - product / torch.where(below == 0, 1.0, below))
    return torch.where(exceptional, d + 0.75 * _element_at(H, high, high - 1).abs(), shift)


def _sweep_start(
    H: Tensor, bands: _Bands, low: Tensor, high: Tensor, exceptional: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Returns the row where a sweep starts, and the column that its first reflection acts on.

    The column is the first one of H minus the shift, or of the product of both shifted matrices for a real H. The sweep
    starts below ``low`` where the product of two consecutive subdiagonal elements is negligible.
    """
    diagonal, below, above = bands
    under, after = below.roll(-1, -2), diagonal.roll(-1, -2)
    bound = pivot_magnitude(diagonal) + pivot_magnitude(after)
    if H.is_complex():
        vector = (diagonal - _complex_shift(H, high, exceptional), under, torch.zeros_like(under))
    else:
        re, im = _real_shift(H, high, exceptional)
        first = (diagonal - re) * (diagonal - re) + im * im + above.roll(-1, -2) * under
        vector = (first, under * (diagonal + after - 2 * re), under * below.roll(-2, -2))
        bound = bound + diagonal.roll(1, -2).abs()
    sizes = [pivot_magnitude(x) for x in vector]
    small = pivot_magnitude(below) * (sizes[1] + sizes[2]) <= eps * sizes[0] * bound
    rows = indices_along(H, -2)
    inside = (rows > low) & (rows <= high - (1 if H.is_complex() else 2))
    start = torch.where(inside & small, rows, low).amax(-2, keepdim=True)
    column = torch.zeros_like(diagonal)
    for i, x in enumerate(vector):
        column = torch.where(rows == start + i, x.roll(i, -2), column)
    return start, column / pivot_magnitude(column).sum(-2, keepdim=True).clamp(min=TINY)


def _sweep(H: Tensor, Z: Tensor, low: Tensor, high: Tensor, column: Tensor) -> Tensors:
    """Runs a sweep over the rows from ``low`` to ``high``, with reflections of two rows, or three for a real matrix."""
    reach = 1 if H.is_complex() else 2

    def step(k: Tensor, H: Tensor, Z: Tensor, low: Tensor, high: Tensor, first: Tensor) -> Tensors:
        rows, columns = indices_along(H, -2), indices_along(H, -1)
        before = (k - 1).clamp(min=0)
        active = (low <= k) & (k < high)
        column = torch.where(low == k, first, slice_at(H, -1, before))
        column = torch.where(active & (rows >= k) & (rows <= high) & (rows <= k + reach), column, 0.0)
        vector, tau, _ = householder_reflection(column, k)
        H, Z = _reflect(H, Z, vector, tau)
        return torch.where(active & (columns == k - 1) & (rows > k), 0.0, H), Z

    return rolled_for_loop(H.size(-1) - 1, step, (H, Z), (low, high, column))


def _is_unfinished(rounds: Tensor, H: Tensor, Z: Tensor, high: Tensor, idle: Tensor) -> Tensor:
    """Returns whether eigenvalues are left, and the limit of sweeps is not reached."""
    return (high > 0).any() & (rounds < 30 * H.size(-1) + 300)


def schur(A: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Returns T and Z with A Z = Z T.

    T is upper triangular, except for blocks of two rows on the diagonal if A is real.
    """

    def sweep_once(rounds: Tensor, H: Tensor, Z: Tensor, high: Tensor, idle: Tensor) -> Tensors:
        rows, columns = indices_along(H, -2), indices_along(H, -1)
        low = torch.where(_negligible(_bands(H), eps) & (rows <= high), rows, 0).amax(-2, keepdim=True)
        H = torch.where((rows == low) & (columns == low - 1), 0.0, H)
        done = low >= high - (0 if H.is_complex() else 1)
        start, column = _sweep_start(H, _bands(H), low, high, (idle > 0) & (idle % EXCEPTIONAL_SHIFT_PERIOD == 0), eps)
        H, Z = _sweep(H, Z, start, torch.where(done, start, high), column)
        return rounds + 1, H, Z, torch.where(done, low - 1, high), torch.where(done, 0, idle + 1)

    H, Z = _hessenberg(*_balance(A))
    high = torch.full((*A.shape[:-2], 1, 1), A.size(-1) - 1, dtype=torch.int64, device=A.device)
    _, T, Z, _, _ = while_loop(_is_unfinished, sweep_once, (torch.full((), 0), H, Z, high, torch.zeros_like(high)))
    return T, Z


def _split_real_blocks(T: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
    """Returns a real Schur form as a complex one: the blocks of two rows become triangular.

    The eigenvalue with the positive imaginary part comes first.
    """

    def step(k: Tensor, T: Tensor, Z: Tensor) -> Tensors:
        rows = indices_along(T, -2)
        a, b, c, d = (_element_at(T, k + i, k + j).real for i in (0, 1) for j in (0, 1))
        half = (a - d) / 2
        square = half * half + b * c
        root = torch.sqrt(square.abs())
        real = torch.where(square >= 0, torch.where(half < 0, -root, root), 0.0)
        shift = torch.complex(half + real, torch.where(square < 0, root, 0.0))  # eigenvalue - d
        column = torch.where(rows == k, shift, torch.where(rows == k + 1, torch.complex(c, torch.zeros_like(c)), 0.0))
        vector, tau, _ = householder_reflection(torch.where(c == 0, 0.0, column), k)
        T, Z = _reflect(T, Z, vector, tau)
        return torch.where((rows == k + 1) & (indices_along(T, -1) == k), 0.0, T), Z

    return rolled_for_loop(T.size(-1) - 1, step, (to_float64(T, True), to_float64(Z, True)))  # type: ignore[return-value]


def _triangular_eigenvectors(T: Tensor) -> Tensor:
    """Returns the eigenvectors of an upper triangular matrix by back substitution, each with a 1 on the diagonal."""

    def step(k: Tensor, X: Tensor, T: Tensor) -> Tensors:
        i = T.size(-1) - 1 - k
        row, diagonal = slice_at(T, -2, i), T.diagonal(dim1=-2, dim2=-1).unsqueeze(-2)
        strict = torch.where(indices_along(T, -1) > i, row, 0.0)
        apart = slice_at(diagonal, -1, i) - diagonal
        least = (T.abs().amax((-2, -1), keepdim=True) * torch.finfo(torch.float64).eps).clamp(min=TINY)
        apart = torch.where(apart.abs() < least, least, apart)
        solved = torch.where(indices_along(T, -1) > i, -torch.matmul(strict, X) / apart, slice_at(X, -2, i))
        return (torch.where(indices_along(X, -2) == i, solved, X),)

    return rolled_for_loop(T.size(-1), step, (batched_eye(T, T.size(-1), T.size(-1)),), (T,))[0]


def _complex_schur(A: Tensor) -> tuple[Tensor, Tensor]:
    """Returns T and Z with A Z = Z T, in complex128, where T is upper triangular."""
    if is_empty(A):
        return to_float64(A, True), to_float64(A, True)
    T, Z = schur(to_float64(A), torch.finfo(A.dtype).eps)
    return (T, Z) if A.is_complex() else _split_real_blocks(T, Z)


@decomposes_unless_empty(aten.linalg_eig.default)
def linalg_eig(self: Tensor) -> tuple[Tensor, Tensor]:
    """Returns eigenvalues, and eigenvectors of length 1 whose element of the largest magnitude is real."""
    T, Z = _complex_schur(self)
    values, vectors = T.diagonal(dim1=-2, dim2=-1), Z
    if not is_empty(self):
        vectors = torch.matmul(Z, _triangular_eigenvectors(T))
        sizes = vectors.abs()
        largest = vectors.gather(-2, sizes.argmax(-2, keepdim=True))
        vectors = vectors * (largest.conj() / largest.abs()) / torch.sqrt((sizes * sizes).sum(-2, keepdim=True))
    dtype = self.dtype.to_complex()
    return values.to(dtype), vectors.to(dtype)


@decomposes_unless_empty(aten.linalg_eigvals.default, aten._linalg_eigvals.default)
def linalg_eigvals(self: Tensor) -> Tensor:
    """Returns the eigenvalues, in the order in which the QR algorithm leaves them on the diagonal."""
    return _complex_schur(self)[0].diagonal(dim1=-2, dim2=-1).to(self.dtype.to_complex())
