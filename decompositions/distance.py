"""Decompositions of distances into differences and norms."""

import torch
from torch import Tensor

from fx_onnx.decompositions._norms import vector_norm
from fx_onnx.decompositions._sizes import is_empty
from fx_onnx.decompositions._torch_private import statically_known_true
from fx_onnx.decompositions.registry import aten, decomposes

Number = bool | int | float
_MAX_ROWS_OF_DIFFERENCES = 25  # torch computes the Euclidean distances of more rows by a matrix product


def _norm(difference: Tensor, p: float) -> Tensor:
    """Returns the norm of order p over the last axis; 0 where that axis is empty."""
    if is_empty(difference):
        return difference.sum(-1)
    return vector_norm(difference, p, -1)


def _euclidean_by_matmul(x1: Tensor, x2: Tensor) -> Tensor:
    """Returns √(|x1|² + |x2|² - 2 x1 · x2) for all pairs of rows.

    It needs no tensor of all differences, but is less exact near 0.
    """
    squares = (x1 * x1).sum(-1, keepdim=True) + (x2 * x2).sum(-1).unsqueeze(-2)
    return (squares - 2 * torch.matmul(x1, x2.transpose(-2, -1))).clamp(min=0).sqrt()


@decomposes(aten.cdist.default, aten._cdist_forward.default)
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    """Returns the distance of each row of x1 to each row of x2.

    Euclidean distances between many rows use a matrix product, as in torch.
    """
    rows = (x1.size(-2), x2.size(-2))
    many = any(isinstance(size, int) and size > _MAX_ROWS_OF_DIFFERENCES for size in rows)
    if p == 2 and not is_empty(x1, x2) and (compute_mode == 1 or (many and compute_mode != 2)):
        return _euclidean_by_matmul(x1, x2)
    return _norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


@decomposes(aten._euclidean_dist.default)
def _euclidean_dist(x1: Tensor, x2: Tensor) -> Tensor:
    """Returns the Euclidean distances between all rows."""
    return _euclidean_by_matmul(x1, x2)


def _upper_pairs(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Returns the row and column indices above the diagonal of an n by n matrix, in order.

    For a symbolic n they are computed: counted from the end, row r has r + 1 elements and begins at r (r + 1) / 2.
    """
    if isinstance(n, int):
        first, second = torch.triu_indices(n, n, 1, device=device).unbind(0)
        return first, second
    last = n * (n - 1) // 2 - 1
    position = last - torch.arange(n * (n - 1) // 2, device=device)
    row = torch.floor((torch.sqrt(8 * position.double() + 1) - 1) / 2).long()
    return n - 2 - row, n - 1 - (position - row * (row + 1) // 2)


@decomposes(aten.pdist.default, aten._pdist_forward.default)
def pdist(self: Tensor, p: float = 2.0) -> Tensor:
    """Returns the distance of each row to each later row."""
    first, second = _upper_pairs(self.size(0), self.device)
    return _norm(self.index_select(0, first) - self.index_select(0, second), p)


@decomposes(aten.pairwise_distance.default)
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """Returns the norm of x1 - x2 + eps over the last axis."""
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)


@decomposes(aten.cosine_similarity.default)
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Returns x1 · x2 / (max(|x1|, eps) max(|x2|, eps))."""
    dtype = torch.promote_types(x1.dtype, x2.dtype)
    x1, x2 = x1.to(dtype), x2.to(dtype)
    if x1.dim() != x2.dim() or (x1.dim() and not statically_known_true(x1.size(dim) == x2.size(dim))):
        x1, x2 = torch.broadcast_tensors(x1, x2)  # first, because broadcasting along dim changes the norms
    lengths = [vector_norm(x, 2, dim, keepdim=True).clamp(min=eps) for x in (x1, x2)]
    product: Tensor = (x1 / lengths[0]) * (x2 / lengths[1])
    return product.sum(dim)


@decomposes(aten.dist.default)
def dist(self: Tensor, other: Tensor, p: Number = 2) -> Tensor:
    """Returns the norm of self - other."""
    return vector_norm(self - other, p)


@decomposes(aten.linalg_vecdot.default)
def linalg_vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """Returns Σ conj(x) * y over one axis."""
    return ((x.conj() if x.is_complex() else x) * y).sum(dim)


@decomposes(aten.trace.default)
def trace(self: Tensor) -> Tensor:
    """Returns the sum of the diagonal."""
    return self.diagonal().sum()


@decomposes(aten.renorm.default)
def renorm(self: Tensor, p: Number, dim: int, maxnorm: Number) -> Tensor:
    """Returns self, with each slice along ``dim`` scaled down to a norm of at most ``maxnorm``."""
    others = [axis for axis in range(self.dim()) if axis != dim % self.dim()]
    norm = vector_norm(self, p, others, keepdim=True)
    return self * torch.where(norm > maxnorm, maxnorm / (norm + 1e-7), 1.0).to(self.dtype)
