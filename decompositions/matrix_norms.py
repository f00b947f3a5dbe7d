"""Norms of matrices: the largest or the smallest of their parts. torch's own compositions read sizes as numbers."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fx_onnx.decompositions._norms import vector_norm
from fx_onnx.decompositions._sizes import is_empty, is_known
from fx_onnx.decompositions.registry import aten, decomposes


@decomposes(aten.linalg_matrix_norm.default)
def linalg_matrix_norm(
    self: Tensor, ord: float, dim: Sequence[int] = (-2, -1), keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Returns an extreme singular value, or an extreme sum of the magnitudes of a column or a row.

    Args:
        self: (*, row, column), in any order of the axes.
        ord: 2 for singular values, 1 for columns, infinity for rows; negative for the smallest of them.
        dim: The axes of rows and columns.
        keepdim: Whether both axes stay.
        dtype: The dtype to compute in.
    """
    rows, columns = (axis % self.dim() for axis in dim)
    if abs(ord) == 2:
        matrices = self if dtype is None else self.to(dtype)
        values = torch.linalg.svdvals(matrices.movedim((rows, columns), (-2, -1)))
        extreme = _extreme(values, [-1], ord, False)
        return extreme.unsqueeze(min(rows, columns)).unsqueeze(max(rows, columns)) if keepdim else extreme
    summed, others = (columns, rows) if math.isinf(ord) else (rows, columns)
    return _extreme(vector_norm(self, 1, summed, True, dtype=dtype), [others, summed], ord, keepdim)


def _extreme(values: Tensor, axes: list[int], ord: float, keepdim: bool) -> Tensor:
    """Returns the largest numbers over axes, or the smallest ones; the largest of none is 0, of the first axis."""
    if ord < 0:
        return values.amin(axes, keepdim)
    if isinstance(values.shape[axes[0]], torch.SymInt):
        values = torch.nn.functional.pad(values, [*[0, 0] * (values.dim() - 1 - axes[0] % values.dim()), 0, 1])
    return values.sum(axes, keepdim) if is_known(values.shape[axes[0]], 0) else values.amax(axes, keepdim)


@decomposes(aten.linalg_norm.default)
def linalg_norm(
    self: Tensor,
    ord: float | None = None,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Returns the norm of matrices for an order and two axes, and that of vectors for others."""
    axes = range(self.dim()) if dim is None else dim
    if ord is not None and len(axes) == 2:
        return linalg_matrix_norm(self, ord, axes, keepdim, dtype=dtype)
    return vector_norm(self, 2 if ord is None else ord, dim, keepdim, dtype=dtype)


@decomposes(aten.linalg_cond.default)
def linalg_cond(self: Tensor, p: float | None = None) -> Tensor:
    """Returns a norm of matrices times that of their inverses; it is infinite without an inverse.

    For singular values, it is the largest one divided by the smallest one. It is 0 for empty matrices.
    """
    if is_empty(self):
        return self.abs().sum((-2, -1))
    if p is None or abs(p) == 2:
        values = torch.linalg.svdvals(self)
        ends = values[..., :1], values[..., -1:]
        ratio: Tensor = ends[1] / ends[0] if p == -2 else ends[0] / ends[1]
        return ratio.sum(-1)
    inverse, error = torch.linalg.inv_ex(self)
    product = linalg_matrix_norm(self, p) * linalg_matrix_norm(inverse, p)
    product = product.masked_fill(error > 0, math.inf)
    return product if p > 0 else product.where(torch.full_like(product, self.shape[-1]) > 0, 0.0)
