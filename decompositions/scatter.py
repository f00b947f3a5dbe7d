"""Decompositions of scatters with a reduction into simpler scatters."""

import math

import torch
from torch import Tensor

from fx_onnx.decompositions.registry import aten, decomposes


def _identity(reduce: str, dtype: torch.dtype) -> bool | int | float:
    """Returns the identity element of a reduction."""
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
    """Returns the reduction of self and the scattered values.

    Without ``include_self`` the written elements start from the identity of the reduction. A mean is a sum divided by a
    count.
    """
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
    """Returns the reduction of self and the values at the indices.

    Without ``include_self`` the written elements start from the identity of the reduction. A mean is a sum divided by a
    count.
    """
    if not include_self:
        self = torch.index_fill(self, dim, index.to(torch.int64), _identity(reduce, self.dtype))
    if reduce != "mean":
        return torch.index_reduce(self, dim, index, source, reduce)
    total = torch.index_add(self, dim, index, source)
    counts = torch.index_add(torch.full_like(self, int(include_self)), dim, index, torch.ones_like(source)).clamp(min=1)
    return torch.div(total, counts, rounding_mode=None if self.dtype.is_floating_point else "floor")


def _clamp_indices(self: Tensor, indices: list[Tensor | None]) -> list[Tensor | None]:
    """Returns the indices, clamped to the sizes of self."""
    pairs = zip(indices, self.shape, strict=False)  # there may be fewer indices than axes
    return [None if index is None else index.clamp(-size, size - 1) for index, size in pairs]


@decomposes(aten._unsafe_masked_index.default)
def unsafe_masked_index(self: Tensor, mask: Tensor, indices: list[Tensor | None], fill: float) -> Tensor:
    """Returns self[indices] where the mask is true, and ``fill`` elsewhere; an index out of range is clamped."""
    picked: Tensor = aten.index.Tensor(self, _clamp_indices(self, indices))
    return picked.masked_fill(~mask, fill)


@decomposes(aten._unsafe_masked_index_put_accumulate.default)
def unsafe_masked_index_put_accumulate(
    self: Tensor, mask: Tensor, indices: list[Tensor | None], values: Tensor
) -> Tensor:
    """Returns self with values added at the indices where the mask is true; an index out of range is clamped."""
    result: Tensor = aten.index_put.default(self, _clamp_indices(self, indices), values.masked_fill(~mask, 0), True)
    return result


_INITIAL = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


@decomposes(aten.segment_reduce.default)
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Tensor:
    """Returns the reduction of each segment along ``axis``, as a scatter.

    An element outside all segments goes to an additional segment, which is cut off.

    Args:
        lengths: (…, S): the lengths of the segments, which follow each other.
        offsets: (…, S + 1): the boundaries between the segments, given instead of the lengths.
    """
    if offsets is not None:
        ends, lengths = offsets[..., 1:], offsets.diff()
    elif lengths is not None:
        ends = lengths.cumsum(-1)
    else:
        raise NotImplementedError("segment_reduce by indices is not implemented in PyTorch. Pass lengths or offsets.")
    count, position = lengths.shape[-1], torch.arange(data.shape[axis], device=data.device)
    segment = (position.unsqueeze(-1) >= ends.unsqueeze(-2)).sum(-1)
    if offsets is not None:
        segment = torch.where(position >= offsets[..., :1], segment, count)
    rest = data.shape[axis + 1 :]
    for _ in rest:
        segment, lengths = segment.unsqueeze(-1), lengths.unsqueeze(-1)
    segment = segment.expand([*[-1] * (axis + 1), *rest])
    shape = [*data.shape[:axis], count + 1, *rest]
    start = data.new_full(shape, _INITIAL[reduce] if initial is None else initial)
    kind = {"mean": "sum", "max": "amax", "min": "amin"}.get(reduce, reduce)
    result = torch.scatter_reduce(start, axis, segment, data, kind).narrow(axis, 0, count)
    if reduce != "mean":
        return result
    # An empty segment gives NaN, or the initial value.
    return result / (lengths if initial is None else lengths.clamp(min=1))
