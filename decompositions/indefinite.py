"""Symmetric matrices that need not be definite: A = L @ D @ Lᵀ with pivots of one or two rows, after Bunch and Kaufman.

One step of whole-tensor arithmetic for each column, O(n³) in all; the pivots are those of LAPACK's sytf2 and hetf2, and
so is the packed result: D's blocks on the diagonal, L below, whose columns stay where they are when later rows swap.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fx_onnx.decompositions._empty_results import decomposes_unless_empty
from fx_onnx.decompositions._loops import Tensors, each, indices, pick
from fx_onnx.decompositions.factorization import batched, first_of, pivot_size, swapped
from fx_onnx.decompositions.registry import aten

GROWTH = (1 + math.sqrt(17)) / 8
"""How much smaller than its column a pivot may be: it bounds the growth over two pivots of one row and one of two."""


def _transposed(x: Tensor, hermitian: bool) -> Tensor:
    return x.mH if hermitian else x.mT


class _Pivot(NamedTuple):
    """Which row comes to the pivot's last place, whether the pivot has two rows, and whether the column is zero."""

    place: Tensor
    two: Tensor
    zero: Tensor


def _pivot(W: Tensor, k: Tensor) -> _Pivot:
    rows = indices(W, -2)
    sizes = pivot_size(pick(W, -1, k))
    own, below = pick(sizes, -2, k), torch.where(rows > k, sizes, 0.0)
    largest, place = below.amax(-2, keepdim=True), below.argmax(-2, keepdim=True)
    other = pivot_size(W.gather(-1, place.expand((*W.shape[:-1], 1))))
    beside = torch.where((rows >= k) & (rows != place), other, 0.0).amax(-2, keepdim=True)
    stays = (own >= GROWTH * largest) | (own * beside >= GROWTH * largest * largest)
    two = ~stays & (other.gather(-2, place) < GROWTH * beside)
    return _Pivot(torch.where(stays, k, place), two, own + largest == 0)


def _quotients(first: Tensor, second: Tensor, k: Tensor, two: Tensor, hermitian: bool) -> tuple[Tensor, Tensor]:
    """Two columns divided by the pivot at k: by their first number, or by their first two rows."""
    after = _next(first, k)
    a, b, c = pick(first, -2, k), pick(first, -2, after), pick(second, -2, after)
    single = first / torch.where(a == 0, 1.0, a)
    b = torch.where(two, b, 1.0)  # by far the largest of the two rows
    adjoint = b.conj() if hermitian else b
    determinant = torch.where(two, a * (c / b) - adjoint, 1.0)
    left, right = first * (c / b) - second, second * (a / b) - first * (adjoint / b)
    return torch.where(two, left / determinant, single), torch.where(two, right / determinant, 0.0)


def _next(x: Tensor, k: Tensor) -> Tensor:
    """The row after k; the last one itself."""
    return (k + 1).clamp(max=x.size(-2) - 1)


def ldl(A: Tensor, hermitian: bool) -> tuple[Tensor, Tensor, Tensor]:
    """D and L in one matrix, from A's lower triangle; LAPACK's pivots, negative for two rows, and its info."""

    def step(k: Tensor, W: Tensor, packed: Tensor, pivots: Tensor, zeros: Tensor, done: Tensor) -> Tensors:
        """``done`` says that this column was done together with the one before."""
        rows, columns = indices(W, -2), indices(W, -1)
        place, two, zero = _pivot(W, k)
        two = two & ~done
        last = k + two.to(torch.int64)
        (turned,) = swapped(last, place, swapped(last, place, W)[0].mT)
        turned = turned.mT
        first, second = pick(turned, -1, k), pick(turned, -1, _next(W, k))
        left, right = (torch.where(rows > last, x, 0.0) for x in _quotients(first, second, k, two, hermitian))
        update = left * _transposed(first, hermitian) + right * _transposed(second, hermitian)
        ours = ~done & ((columns == k) | (two & (columns == last)))
        below = torch.where(columns == k, left, right)
        column = torch.where(rows > last, below, torch.where(rows >= columns, turned, 0.0))
        numbers = torch.where(two, -1 - place, 1 + place)
        return (
            torch.where(~done & (rows > last) & (columns > last), turned - update, torch.where(done, W, turned)),
            torch.where(ours, column, packed),
            torch.where(ours, numbers, pivots),
            torch.where(ours, zero, zeros),
            two,
        )

    lower = A.tril()
    whole = lower + _transposed(lower.tril(-1), hermitian)
    pivots = torch.zeros((*A.shape[:-2], 1, A.size(-1)), dtype=torch.int64, device=A.device)
    done = torch.zeros((*A.shape[:-2], 1, 1), dtype=torch.bool, device=A.device)
    carry = (whole, torch.zeros_like(A), pivots, pivots != 0, done)
    _, packed, pivots, zeros, _ = each(A.size(-1), step, carry)
    return packed, pivots.squeeze(-2).to(torch.int32), first_of(zeros.squeeze(-2))


@decomposes_unless_empty(aten.linalg_ldl_factor_ex.default)
def linalg_ldl_factor_ex(
    self: Tensor, *, hermitian: bool = False, check_errors: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """D and L in one matrix, LAPACK's pivots and info."""
    return ldl(self, hermitian and self.is_complex())


class _Blocks(NamedTuple):
    """D's blocks of two rows: which rows take part in one, and which of them are the first."""

    paired: Tensor
    starts: Tensor


def _divided(X: Tensor, LD: Tensor, blocks: _Blocks, hermitian: bool) -> Tensor:
    """X divided by D's blocks of one or two rows."""

    def neighbour(x: Tensor) -> Tensor:
        """The other row of a block of two."""
        return torch.where(starts, x.roll(-1, -2), x.roll(1, -2))

    paired, starts = (flags.unsqueeze(-1) for flags in blocks)
    under = (indices(LD, -2) == indices(LD, -1) + 1) & starts.mT
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
    """X with A @ X = B out of A's factorization: L's columns and swaps forwards, D, the same backwards."""

    def turned(X: Tensor, k: Tensor, one: Tensor, other: Tensor) -> Tensor:
        return swapped(pick(one, -1, k).unsqueeze(-1), pick(other, -1, k).unsqueeze(-1), X)[0]

    def forwards(k: Tensor, X: Tensor, L: Tensor, one: Tensor, other: Tensor) -> Tensors:
        X = turned(X, k, one, other)
        return (X - pick(L, -1, k) * pick(X, -2, k),)

    def backwards(k: Tensor, X: Tensor, L: Tensor, one: Tensor, other: Tensor) -> Tensors:
        k = L.size(-1) - 1 - k
        row = pick(X, -2, k) - torch.matmul(_transposed(pick(L, -1, k), hermitian), X)
        return (turned(torch.where(indices(X, -2) == k, row, X), k, one, other),)

    hermitian = hermitian and LD.is_complex()
    batch = torch.broadcast_shapes(LD.shape[:-2], B.shape[:-2])
    LD, B = batched(LD, batch), batched(B, batch)
    pivots = batched(pivots.to(torch.int64), batch, 1)
    paired = pivots < 0
    blocks = _Blocks(paired, paired & (paired.to(torch.int64).cumsum(-1) % 2 == 1))
    places = indices(pivots, -1)
    one = torch.where(blocks.starts, places + 1, places)
    other = torch.where(paired & ~blocks.starts, places, pivots.abs() - 1)
    L = torch.where((indices(LD, -2) == one.unsqueeze(-2)) & blocks.starts.unsqueeze(-2), 0.0, LD.tril(-1))
    (X,) = each(LD.size(-1), forwards, (B,), (L, one, other))
    X = _divided(X, LD, blocks, hermitian)
    return each(LD.size(-1), backwards, (X,), (L, one, other))[0]
