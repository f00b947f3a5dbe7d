"""Decompositions of writes along a diagonal or at strides into slices and index_put."""

import torch
from torch import Tensor

from fx_onnx.decompositions._sizes import at_least
from fx_onnx.decompositions._torch_private import statically_known_true
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


@decomposes(aten.as_strided.default)
def as_strided(self: Tensor, size: list[int], stride: list[int], storage_offset: int | None = None) -> Tensor:
    """Returns the elements storage_offset + Σ i_k * stride_k of the storage, which a permutation of self fills."""
    return torch.as_strided(self.permute(_memory_order(self)), size, stride, storage_offset)


@decomposes(aten.as_strided_scatter.default)
def as_strided_scatter(
    self: Tensor, src: Tensor, size: list[int], stride: list[int], storage_offset: int | None = None
) -> Tensor:
    """Returns self with src at the elements storage_offset + Σ i_k * stride_k of its storage."""
    places = torch.full((), storage_offset or 0, dtype=torch.int64, device=self.device)
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        steps = torch.arange(count, device=self.device) * step
        places = places + steps.reshape([-1] + [1] * (len(size) - axis - 1))
    order = _memory_order(self)
    memory = self.permute(order)
    flat = memory.reshape(-1).index_put((places.reshape(-1),), src.reshape(-1))
    return flat.reshape(memory.shape).permute([order.index(axis) for axis in range(self.ndim)])


def _memory_order(x: Tensor) -> list[int]:
    """Returns the permutation of the axes in which x fills its storage from the start.

    Raises:
        NotImplementedError: the storage has other elements too, or some twice, which a program does not have.
    """
    order = sorted(range(x.ndim), key=x.stride, reverse=True)
    if not x.permute(order).is_contiguous() or x.storage_offset() != 0:
        raise NotImplementedError(
            "as_strided reads the storage of a tensor, but the tensor is only a part of it. Call it on a clone."
        )
    return order


@decomposes(aten.diff.default)
def diff(
    self: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Returns the n-th differences of neighbours, which are none where there are no more than n elements."""
    if n == 0:
        return self.clone()
    differences = torch.cat([part for part in (prepend, self, append) if part is not None], dim)
    for step in range(n):
        first, second = _neighbours(differences, dim, least=2 - step)
        differences = second ^ first if differences.dtype == torch.bool else second - first
    return differences


def _neighbours(x: Tensor, dim: int, least: int) -> tuple[Tensor, Tensor]:
    """Returns x without its last and without its first elements; an input has at least ``least`` elements.

    The size of a slice would need a comparison of a symbolic size where there may be less than one element.
    """
    count = x.shape[dim] - 1
    if count >= 0 if isinstance(count, int) else least > 1 and statically_known_true(count >= 0):
        return x.narrow(dim, 0, count), x.narrow(dim, 1, count)
    places = torch.arange(at_least(count, 0), device=x.device)
    return x.index_select(dim, places), x.index_select(dim, places + 1)
