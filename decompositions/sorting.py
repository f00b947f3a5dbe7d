"""Order statistics by sorting: median, nanmedian, kthvalue, mode."""

import torch
from torch import Tensor

from fx_onnx.decompositions.registry import aten, decomposes


def _pick(values: Tensor, indices: Tensor, place: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The elements and their indices at one place along dim."""
    picked, index = torch.gather(values, dim, place), torch.gather(indices, dim, place)
    return (picked, index) if keepdim else (picked.squeeze(dim), index.squeeze(dim))


@decomposes(aten.kthvalue.default)
def kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The last of the k smallest."""
    if self.dim() == 0:
        return self.clone(), torch.zeros_like(self, dtype=torch.int64)
    values, indices = torch.topk(self, k, dim, largest=False)
    values, indices = values.narrow(dim, k - 1, 1), indices.narrow(dim, k - 1, 1)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


def _middle(self: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    values, indices = torch.sort(self, dim=dim, stable=True)
    place = torch.full((1,), (self.shape[dim] - 1) // 2, dtype=torch.int64, device=self.device)
    value, index = values.index_select(dim, place), indices.index_select(dim, place)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


@decomposes(aten.median.dim)
def median_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The lower of the two middle elements; the first NaN where there is one."""
    if self.dim() == 0:
        return self.clone(), torch.zeros_like(self, dtype=torch.int64)
    if not self.dtype.is_floating_point:
        return _middle(self, dim, keepdim)
    nan = self.isnan()
    values, indices = _middle(self.masked_fill(nan, float("inf")), dim, keepdim)
    has_nan, first = nan.any(dim, keepdim), nan.to(torch.uint8).argmax(dim, keepdim)
    return values.masked_fill(has_nan, float("nan")), torch.where(has_nan, first, indices)


@decomposes(aten.median.default)
def median(self: Tensor) -> Tensor:
    """The lower of the two middle elements of the flattened tensor."""
    return median_dim(self.reshape(-1), 0)[0]


@decomposes(aten.nanmedian.dim)
def nanmedian_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The lower of the two middle elements among those that are not NaN; NaN where all are."""
    if self.dim() == 0 or not self.dtype.is_floating_point:
        return median_dim(self, dim, keepdim)
    nan = self.isnan()
    values, indices = torch.sort(self.masked_fill(nan, float("inf")), dim=dim, stable=True)
    count = (~nan).sum(dim, keepdim=True)
    place = torch.div(count - 1, 2, rounding_mode="floor").clamp(min=0)
    picked, index = _pick(values, indices, place, dim, True)
    picked = picked.masked_fill(count == 0, float("nan"))
    return (picked, index) if keepdim else (picked.squeeze(dim), index.squeeze(dim))


@decomposes(aten.nanmedian.default)
def nanmedian(self: Tensor) -> Tensor:
    """The lower of the two middle elements of the flattened tensor that are not NaN."""
    return nanmedian_dim(self.reshape(-1), 0)[0]


@decomposes(aten.mode.default)
def mode(self: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The smallest of the most frequent elements, and the last place where it is.

    In the sorted tensor, an element is as frequent as its run is long; the first of the longest runs wins.
    """
    if self.dim() == 0:
        return self.clone(), torch.zeros_like(self, dtype=torch.int64)
    values, indices = torch.sort(self, dim=dim, stable=True)
    size = self.shape[dim]
    sizes = [1] * self.dim()
    sizes[dim] = -1
    place = torch.arange(size, device=self.device).reshape(sizes)
    starts = torch.cat((torch.ones_like(values.narrow(dim, 0, 1), dtype=torch.bool),
                        values.narrow(dim, 1, size - 1) != values.narrow(dim, 0, size - 1)), dim)  # fmt: skip
    begin = torch.cummax(torch.where(starts, place, 0), dim)[0]
    best = (place - begin).argmax(dim, keepdim=True)
    return _pick(values, indices, best, dim, keepdim)


@decomposes(aten.searchsorted.Tensor)
def searchsorted(
    sorted_sequence: Tensor,
    self: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """How many boundaries are below each value (or not above it, from the right); NaN is above all."""
    if sorter is not None:
        sorted_sequence = torch.gather(sorted_sequence, -1, sorter)
    boundaries = sorted_sequence.unsqueeze(-2) if sorted_sequence.dim() > 1 else sorted_sequence
    values = self.unsqueeze(-1)
    beyond = (boundaries > values) if (right or side == "right") else (boundaries >= values)
    return (~beyond).sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


@decomposes(aten.searchsorted.Scalar)
def searchsorted_scalar(
    sorted_sequence: Tensor,
    self: float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """How many boundaries are below the value."""
    value = torch.scalar_tensor(self, dtype=sorted_sequence.dtype, device=sorted_sequence.device)
    found = searchsorted(sorted_sequence, value.reshape(1), out_int32=out_int32, right=right, side=side, sorter=sorter)
    return found.reshape(())


@decomposes(aten.bucketize.Tensor)
def bucketize(self: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """How many boundaries are below each value."""
    return searchsorted(boundaries, self, out_int32=out_int32, right=right)


@decomposes(aten.bucketize.Scalar)
def bucketize_scalar(self: float, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """How many boundaries are below the value."""
    return searchsorted_scalar(boundaries, self, out_int32=out_int32, right=right)
