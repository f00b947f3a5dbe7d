"""Scatters that reduce, said in plainer scatters."""

import torch
from torch import Tensor

from fx_onnx.decompositions.registry import decomposes

aten = torch.ops.aten


def _identity(reduce: str, dtype: torch.dtype) -> bool | int | float:
    """What leaves the other operand of a reduction as it is."""
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    if dtype == torch.bool:
        return reduce == "amin"
    if dtype.is_floating_point:
        return float("-inf") if reduce == "amax" else float("inf")
    return torch.iinfo(dtype).min if reduce == "amax" else torch.iinfo(dtype).max


@decomposes(aten.scatter_reduce.two)
def scatter_reduce(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Without self, what is written starts from the identity of the reduction; a mean is a sum and a count."""
    if not include_self:
        self = torch.scatter(self, dim, index, _identity(reduce, self.dtype))
    if reduce != "mean":
        return torch.scatter_reduce(self, dim, index, src, reduce)
    total = torch.scatter_add(self, dim, index, src)
    counts = torch.full_like(self, int(include_self))
    counts = torch.scatter_add(counts, dim, index, torch.ones_like(src)).clamp(min=1)
    return torch.div(total, counts, rounding_mode=None if self.dtype.is_floating_point else "floor")


@decomposes(aten.index_reduce.default)
def index_reduce(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Without self, what is written starts from the identity of the reduction; a mean is a sum and a count."""
    if not include_self:
        self = torch.index_fill(self, dim, index.to(torch.int64), _identity(reduce, self.dtype))
    if reduce != "mean":
        return torch.index_reduce(self, dim, index, source, reduce)
    total = torch.index_add(self, dim, index, source)
    counts = torch.index_add(torch.full_like(self, int(include_self)), dim, index, torch.ones_like(source)).clamp(min=1)
    return torch.div(total, counts, rounding_mode=None if self.dtype.is_floating_point else "floor")


@decomposes(aten._unsafe_masked_index.default)
def unsafe_masked_index(self: Tensor, mask: Tensor, indices: list[Tensor | None], fill: float) -> Tensor:
    """self[indices] where the mask is true, else fill; the indices may be out of range where it is false."""
    limits = [None if index is None else torch.where(mask, index, torch.zeros_like(index)) for index in indices]
    found: Tensor = torch.ops.aten.index.Tensor(self, limits)
    return found.masked_fill(~mask, fill)


@decomposes(aten._unsafe_masked_index_put_accumulate.default)
def unsafe_masked_index_put_accumulate(
    self: Tensor, mask: Tensor, indices: list[Tensor | None], values: Tensor
) -> Tensor:
    """self[indices] += values where the mask is true."""
    limits = [None if index is None else torch.where(mask, index, torch.zeros_like(index)) for index in indices]
    result: Tensor = torch.ops.aten.index_put.default(self, limits, values.masked_fill(~mask, 0), True)
    return result
