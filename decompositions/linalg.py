"""Decompositions of matrix products with additions, of several matrices, and of Kronecker products into matmul."""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from fx_onnx.decompositions._empty_results import decomposes_unless_empty
from fx_onnx.decompositions._sizes import is_known
from fx_onnx.decompositions.registry import aten, decomposes

Number = bool | int | float


def _scaled_sum(self: Tensor, product: Tensor, beta: Number, alpha: Number) -> Tensor:
    """Returns beta * self + alpha * product.

    A beta of 0 ignores self, even if it holds NaN. A factor may be symbolic. For integer and boolean tensors the
    factors are converted to integers or booleans first.
    """
    if not (product.is_floating_point() or product.is_complex()):
        kind = bool if product.dtype == torch.bool else int
        beta, alpha = kind(beta), kind(alpha)
    if not is_known(alpha, 1):
        product = product * alpha
    if isinstance(beta, torch.SymFloat):
        return product + torch.where(torch.full((), beta) == 0, 0.0, self * beta)
    if beta == 0:
        return product
    return product + (self if beta == 1 else self * beta)


@decomposes(aten.addmm.default)
def addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """Returns beta * self + alpha * mat1 @ mat2."""
    return _scaled_sum(self, torch.matmul(mat1, mat2), beta, alpha)


@decomposes(aten.addmv.default)
def addmv(self: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """Returns beta * self + alpha * mat @ vec."""
    return _scaled_sum(self, torch.matmul(mat, vec), beta, alpha)


@decomposes(aten.baddbmm.default)
def baddbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """Returns beta * self + alpha * batch1 @ batch2, for each matrix of the batch."""
    return _scaled_sum(self, torch.matmul(batch1, batch2), beta, alpha)


@decomposes(aten.addbmm.default)
def addbmm(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """Returns beta * self + alpha * Σ batch1 @ batch2 over the batch."""
    return _scaled_sum(self, torch.matmul(batch1, batch2).sum(0, dtype=self.dtype), beta, alpha)


@decomposes(aten.addr.default)
def addr(self: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """Returns beta * self + alpha * the outer product of the vectors."""
    return _scaled_sum(self, vec1.unsqueeze(1) * vec2, beta, alpha)


@decomposes(aten.vdot.default)
def vdot(self: Tensor, other: Tensor) -> Tensor:
    """Returns Σ conj(self) * other."""
    return torch.dot(self.conj() if self.is_complex() else self, other)


@decomposes_unless_empty(aten.bilinear.default)
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns input1ᵀ @ weight[k] @ input2 + bias[k] for each feature k of the result."""
    right = torch.matmul(weight, input2.unsqueeze(-2).unsqueeze(-1)).squeeze(-1)
    out = torch.matmul(right, input1.unsqueeze(-1)).squeeze(-1)
    return out if bias is None else out + bias


@decomposes(aten.kron.default)
def kron(self: Tensor, other: Tensor) -> Tensor:
    """Returns each element of self times the whole of other; torch's own composition reads the sizes as numbers."""
    rank = max(self.dim(), other.dim())
    outer, inner = ([*[1] * (rank - matrix.dim()), *matrix.shape] for matrix in (self, other))
    pairs = [*zip(outer, inner, strict=True)]
    left, right = ((size, 1) for size in outer), ((1, size) for size in inner)
    product = self.reshape([n for sizes in left for n in sizes]) * other.reshape([n for sizes in right for n in sizes])
    return product.reshape([first * second for first, second in pairs])


@decomposes(aten.linalg_multi_dot.default, aten.chain_matmul.default)
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """Returns the product of matrices, in the order of the fewest multiplications; a dynamic size counts as 64.

    The first tensor may be a row, the last one a column, without the other dimension.
    """
    first, *_, last = tensors
    matrices = [first.unsqueeze(0) if first.dim() == 1 else first, *tensors[1:]]
    matrices[-1] = last.unsqueeze(1) if last.dim() == 1 else last
    sizes = [size if isinstance(size, int) else 64 for size in (matrices[0].size(0), *(m.size(1) for m in matrices))]

    @cache
    def split(start: int, end: int) -> tuple[int, int]:
        """Returns the number of multiplications of some of the matrices, and where their last product is."""
        if end - start == 1:
            return 0, start
        costs = ((split(start, k)[0] + split(k, end)[0] + sizes[start] * sizes[k] * sizes[end], k)
                 for k in range(start + 1, end))  # fmt: skip
        return min(costs)

    def product(start: int, end: int) -> Tensor:
        if end - start == 1:
            return matrices[start]
        middle = split(start, end)[1]
        return torch.mm(product(start, middle), product(middle, end))

    result = product(0, len(matrices))
    result = result.squeeze(0) if first.dim() == 1 else result
    return result.squeeze(-1) if last.dim() == 1 else result
