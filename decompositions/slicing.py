"""Decompositions of writes along a diagonal or at strides into slices and index_put."""

import torch
from torch import Tensor

from fx_onnx.decompositions._sizes import at_least
from fx_onnx.decompositions.registry import aten, decomposes


@decomposes(aten.diagonal_scatter.default)
def diagonal_scatter(self: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Returns self with src written along a diagonal.

    In the two axes, flattened into one, the diagonal is every (columns + 1)-th element.
    """
    moved = self.movedim((dim1, dim2), (-2, -1))
    columns = moved.shape[-1]
    flat = moved.flatten(-2)
    start = offset if offset >= 0 else -offset * columns
    end = start + src.shape[-1] * (columns + 1)
    flat = torch.slice_scatter(flat, src, -1, start, end, columns + 1)
    return flat.reshape(moved.shape).movedim((-2, -1), (dim1, dim2))


@decomposes(aten.diag_embed.default)
def diag_embed(self: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Returns zeros, with the last axis of self on a diagonal of two new axes."""
    size = self.shape[-1] + abs(offset)
    zeros = self.new_zeros([*self.shape[:-1], size, size])
    return torch.diagonal_scatter(zeros, self, offset, -2, -1).movedim((-2, -1), (dim1, dim2))


@decomposes(aten.as_strided_scatter.default)
def as_strided_scatter(
    self: Tensor, src: Tensor, size: list[int], stride: list[int], storage_offset: int | None = None
) -> Tensor:
    """Returns the contiguous self with src at the elements storage_offset + Σ i_k * stride_k of its storage."""
    places = torch.full((), storage_offset or 0, dtype=torch.int64, device=self.device)
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        steps = torch.arange(count, device=self.device) * step
        places = places + steps.reshape([-1] + [1] * (len(size) - axis - 1))
    flat = self.reshape(-1).index_put((places.reshape(-1),), src.reshape(-1))
    return flat.reshape(self.shape)


@decomposes(aten.diff.default)
def diff(
    self: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Returns the n-th differences of neighbours, which are none where there are no more than n elements."""
    if n == 0:
        return self.clone()
    found = torch.cat([part for part in (prepend, self, append) if part is not None], dim)
    for step in range(n):
        first, second = _neighbours(found, dim, least=2 - step)
        found = second ^ first if found.dtype == torch.bool else second - first
    return found


def _neighbours(x: Tensor, dim: int, least: int) -> tuple[Tensor, Tensor]:
    """Returns x without its last and without its first elements; ``least`` elements are known to be there.

    The size of a slice would need a comparison of a symbolic size where there may be less than one element.
    """
    count = x.shape[dim] - 1
    if count >= 0 if isinstance(count, int) else least > 1:
        return x.narrow(dim, 0, count), x.narrow(dim, 1, count)
    places = torch.arange(at_least(count, 0), device=x.device)
    return x.index_select(dim, places), x.index_select(dim, places + 1)
