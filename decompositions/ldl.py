"""Factorization of symmetric indefinite matrices: A = L @ D @ Lᵀ, by Bunch and Kaufman's diagonal pivoting.

The blocks of D have one or two rows. The pivots and the packed result are those of LAPACK's sytf2 and hetf2: the blocks
of D are on the diagonal, and L is below them; columns of L do not follow later swaps of rows. There is one step of
whole-tensor arithmetic for each column, O(n³) in all. Source: Bunch and Kaufman, Some Stable Methods for Calculating
Inertia and Solving Symmetric Linear Systems, 1977; Golub and Van Loan, Matrix Computations, 4.4.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fx_onnx.decompositions._empty_results import decomposes_unless_empty
from fx_onnx.decompositions._loops import Tensors, for_loop, indices_along, slice_at
from fx_onnx.decompositions.factorization import expand_batch, lapack_info, pivot_magnitude, swap_rows
from fx_onnx.decompositions.registry import aten

PIVOT_RATIO = (1 + math.sqrt(17)) / 8
"""The smallest ratio of a pivot of one row to the largest element of its column.

At this value, two pivots of one row and one pivot of two rows have the same bound on the growth of the elements.
"""


def _adjoint(x: Tensor, hermitian: bool) -> Tensor:
    """Returns the conjugate transpose of Hermitian matrices, and the transpose of symmetric ones."""
    return x.mH if hermitian else x.mT


class _Pivot(NamedTuple):
    """The pivot that is chosen for a column.

    Attributes:
        place: the row that is swapped with the last row of the pivot block.
        two: whether the block has two rows.
        zero: whether the column is zero.
    """

    row: Tensor
    two: Tensor
    zero: Tensor


def _choose_pivot(W: Tensor, k: Tensor) -> _Pivot:
    """Chooses the pivot of column k of the remaining matrix W."""
    rows = indices_along(W, -2)
    sizes = pivot_magnitude(slice_at(W, -1, k))
    diagonal, below = slice_at(sizes, -2, k), torch.where(rows > k, sizes, 0.0)
    largest, row = below.amax(-2, keepdim=True), below.argmax(-2, keepdim=True)
    other = pivot_magnitude(W.gather(-1, row.expand((*W.shape[:-1], 1))))
    largest_of_other = torch.where((rows >= k) & (rows != row), other, 0.0).amax(-2, keepdim=True)
    stays = (diagonal >= PIVOT_RATIO * largest) | (diagonal * largest_of_other >= PIVOT_RATIO * largest * largest)
    two = ~stays & (other.gather(-2, row) < PIVOT_RATIO * largest_of_other)
    return _Pivot(torch.where(stays, k, row), two, diagonal + largest == 0)


def _multiply_by_inverse_pivot(
    first: Tensor, second: Tensor, k: Tensor, two: Tensor, hermitian: bool
) -> tuple[Tensor, Tensor]:
    """Returns two columns of the remaining matrix, multiplied by the inverse of the pivot block at k.

    With a block of one row, the first column is divided by its element at k, and the second result is zero.
    """
    after = _next_row(first, k)
    a, b, c = slice_at(first, -2, k), slice_at(first, -2, after), slice_at(second, -2, after)
    single = first / torch.where(a == 0, 1.0, a)
    b = torch.where(two, b, 1.0)  # in a block of two, the largest element: dividing by it avoids overflow
    adjoint = b.conj() if hermitian else b
    determinant = torch.where(two, a * (c / b) - adjoint, 1.0)
    left, right = first * (c / b) - second, second * (a / b) - first * (adjoint / b)
    return torch.where(two, left / determinant, single), torch.where(two, right / determinant, 0.0)


def _next_row(x: Tensor, k: Tensor) -> Tensor:
    """Returns the index of the row after k, or of the last row."""
    return (k + 1).clamp(max=x.size(-2) - 1)


def ldl(A: Tensor, hermitian: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Returns D and L in one matrix, LAPACK's pivots (negative in blocks of two rows) and info.

    It reads A's lower triangle only.
    """

    def step(k: Tensor, W: Tensor, packed: Tensor, pivots: Tensor, zeros: Tensor, done: Tensor) -> Tensors:
        """Eliminates column k, unless ``done``: the previous step eliminated it as the second column of a block."""
        rows, columns = indices_along(W, -2), indices_along(W, -1)
        row, two, zero = _choose_pivot(W, k)
        two = two & ~done
        last = k + two.to(torch.int64)
        (swapped,) = swap_rows(last, row, swap_rows(last, row, W)[0].mT)
        swapped = swapped.mT
        first, second = slice_at(swapped, -1, k), slice_at(swapped, -1, _next_row(W, k))
        left, right = (
            torch.where(rows > last, x, 0.0) for x in _multiply_by_inverse_pivot(first, second, k, two, hermitian)
        )
        update = left * _adjoint(first, hermitian) + right * _adjoint(second, hermitian)
        in_block = ~done & ((columns == k) | (two & (columns == last)))
        below = torch.where(columns == k, left, right)
        column = torch.where(rows > last, below, torch.where(rows >= columns, swapped, 0.0))
        numbers = torch.where(two, -1 - row, 1 + row)
        return (
            torch.where(~done & (rows > last) & (columns > last), swapped - update, torch.where(done, W, swapped)),
            torch.where(in_block, column, packed),
            torch.where(in_block, numbers, pivots),
            torch.where(in_block, zero, zeros),
            two,
        )

    lower = A.tril()
    whole = lower + _adjoint(lower.tril(-1), hermitian)
    pivots = torch.zeros((*A.shape[:-2], 1, A.size(-1)), dtype=torch.int64, device=A.device)
    done = torch.zeros((*A.shape[:-2], 1, 1), dtype=torch.bool, device=A.device)
    carry = (whole, torch.zeros_like(A), pivots, pivots != 0, done)
    _, packed, pivots, zeros, _ = for_loop(A.size(-1), step, carry)
    return packed, pivots.squeeze(-2).to(torch.int32), lapack_info(zeros.squeeze(-2))


@decomposes_unless_empty(aten.linalg_ldl_factor_ex.default)
def linalg_ldl_factor_ex(
    self: Tensor, *, hermitian: bool = False, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns D and L in one matrix, LAPACK's pivots and its info."""
    return ldl(self, hermitian and self.is_complex())


class _Blocks(NamedTuple):
    """The blocks of two rows in D.

    Attributes:
        paired: which rows belong to such a block.
        starts: which rows are the first of a block.
    """

    paired: Tensor
    starts: Tensor


def _solve_block_diagonal(X: Tensor, LD: Tensor, blocks: _Blocks, hermitian: bool) -> Tensor:
    """Returns D⁻¹ @ X for the block-diagonal D, whose blocks have one or two rows."""

    def neighbour(x: Tensor) -> Tensor:
        """Returns, for each row of a block of two, the other row of the block."""
        return torch.where(starts, x.roll(-1, -2), x.roll(1, -2))

    paired, starts = (flags.unsqueeze(-1) for flags in blocks)
    under = (indices_along(LD, -2) == indices_along(LD, -1) + 1) & starts.mT
    lower = torch.where(under, LD, 0.0).sum(-2).unsqueeze(-1)
    upper = lower.conj() if hermitian else lower
    product = (lower * upper).roll(1, -2)
    product = torch.where(starts, lower * upper, product)
    own = LD.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
    other = torch.where(paired, neighbour(own), 1.0)
    off = torch.where(starts, upper, lower.roll(1, -2))
    return (other * X - off * neighbour(X)) / (own * other - product)


@decomposes_unless_empty(aten.linalg_ldl_solve.default)
def linalg_ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """Returns X with A @ X = B from A's factorization.

    It applies the swaps and L's columns in order, solves with D, then applies L's transposed columns and the swaps in
    reverse order.
    """

    def swapped(X: Tensor, k: Tensor, one: Tensor, other: Tensor) -> Tensor:
        return swap_rows(slice_at(one, -1, k).unsqueeze(-1), slice_at(other, -1, k).unsqueeze(-1), X)[0]

    def forward_step(k: Tensor, X: Tensor, L: Tensor, one: Tensor, other: Tensor) -> Tensors:
        X = swapped(X, k, one, other)
        return (X - slice_at(L, -1, k) * slice_at(X, -2, k),)

    def backward_step(k: Tensor, X: Tensor, L: Tensor, one: Tensor, other: Tensor) -> Tensors:
        k = L.size(-1) - 1 - k
        row = slice_at(X, -2, k) - torch.matmul(_adjoint(slice_at(L, -1, k), hermitian), X)
        return (swapped(torch.where(indices_along(X, -2) == k, row, X), k, one, other),)

    hermitian = hermitian and LD.is_complex()
    batch = torch.broadcast_shapes(LD.shape[:-2], B.shape[:-2])
    LD, B = expand_batch(LD, batch), expand_batch(B, batch)
    pivots = expand_batch(pivots.to(torch.int64), batch, 1)
    paired = pivots < 0
    blocks = _Blocks(paired, paired & (paired.to(torch.int64).cumsum(-1) % 2 == 1))
    places = indices_along(pivots, -1)  # step k swaps the rows one[k] and other[k]
    one = torch.where(blocks.starts, places + 1, places)
    other = torch.where(paired & ~blocks.starts, places, pivots.abs() - 1)
    L = torch.where((indices_along(LD, -2) == one.unsqueeze(-2)) & blocks.starts.unsqueeze(-2), 0.0, LD.tril(-1))
    (X,) = for_loop(LD.size(-1), forward_step, (B,), (L, one, other))
    X = _solve_block_diagonal(X, LD, blocks, hermitian)
    return for_loop(LD.size(-1), backward_step, (X,), (L, one, other))[0]
