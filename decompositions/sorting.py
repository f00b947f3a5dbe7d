"""Decompositions of order statistics and binary searches into sorts and comparisons."""

import torch
from torch import Tensor

from fx_onnx.decompositions.registry import aten, decomposes


def _of_scalar(self: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the element of a 0-d tensor, and its index 0."""
    return self.clone(), torch.zeros_like(self, dtype=torch.int64)


def _squeezed(values: Tensor, indices: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Returns the results of a reduction, without the axis of size 1 unless ``keepdim``."""
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


def _gather(values: Tensor, indices: Tensor, position: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Returns the elements at ``position`` along dim, and their indices."""
    return _squeezed(torch.gather(values, dim, position), torch.gather(indices, dim, position), dim, keepdim)


@decomposes(aten.kthvalue.default)
def kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Returns the k-th smallest element: the last of the k smallest."""
    if self.dim() == 0:
        return _of_scalar(self)
    values, indices = torch.topk(self, k, dim, largest=False)
    return _squeezed(values.narrow(dim, k - 1, 1), indices.narrow(dim, k - 1, 1), dim, keepdim)


def _middle(self: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """Returns the lower of the two middle elements and its index."""
    values, indices = torch.sort(self, dim=dim, stable=True)
    position = torch.full((1,), (self.shape[dim] - 1) // 2, dtype=torch.int64, device=self.device)
    return _squeezed(values.index_select(dim, position), indices.index_select(dim, position), dim, keepdim)


@decomposes(aten.median.dim)
def median_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Returns the lower of the two middle elements; the first NaN if there is one."""
    if self.dim() == 0:
        return _of_scalar(self)
    if not self.dtype.is_floating_point:
        return _middle(self, dim, keepdim)
    nan = self.isnan()
    values, indices = _middle(self.masked_fill(nan, float("inf")), dim, keepdim)
    has_nan, first = nan.any(dim, keepdim), nan.to(torch.uint8).argmax(dim, keepdim)
    return values.masked_fill(has_nan, float("nan")), torch.where(has_nan, first, indices)


@decomposes(aten.median.default)
def median(self: Tensor) -> Tensor:
    """Returns the lower of the two middle elements of the flattened tensor."""
    return median_dim(self.reshape(-1), 0)[0]


@decomposes(aten.nanmedian.dim)
def nanmedian_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Returns the lower of the two middle elements that are not NaN; NaN if all are NaN."""
    if self.dim() == 0 or not self.dtype.is_floating_point:
        return median_dim(self, dim, keepdim)
    nan = self.isnan()
    values, indices = torch.sort(self.masked_fill(nan, float("inf")), dim=dim, stable=True)
    count = (~nan).sum(dim, keepdim=True)
    position = torch.div(count - 1, 2, rounding_mode="floor").clamp(min=0)
    picked, index = _gather(values, indices, position, dim, True)
    return _squeezed(picked.masked_fill(count == 0, float("nan")), index, dim, keepdim)


@decomposes(aten.nanmedian.default)
def nanmedian(self: Tensor) -> Tensor:
    """Returns the lower of the two middle elements of the flattened tensor that are not NaN."""
    return nanmedian_dim(self.reshape(-1), 0)[0]


@decomposes(aten.mode.default)
def mode(self: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Returns the smallest of the most frequent elements, and the last index where it occurs.

    In the sorted tensor, an element is as frequent as its run is long, and the first of the longest runs wins.
    """
    if self.dim() == 0:
        return _of_scalar(self)
    values, indices = torch.sort(self, dim=dim, stable=True)
    size = self.shape[dim]
    sizes = [1] * self.dim()
    sizes[dim] = -1
    position = torch.arange(size, device=self.device).reshape(sizes)
    starts = torch.cat((torch.ones_like(values.narrow(dim, 0, 1), dtype=torch.bool),
                        values.narrow(dim, 1, size - 1) != values.narrow(dim, 0, size - 1)), dim)  # fmt: skip
    begin = torch.cummax(torch.where(starts, position, 0), dim)[0]
    best = (position - begin).argmax(dim, keepdim=True)
    return _gather(values, indices, best, dim, keepdim)


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
    """Returns how many boundaries are below each value, or not above it if ``right``; NaN is above all boundaries."""
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
    """Returns how many boundaries are below the value, or not above it if ``right``."""
    value = torch.scalar_tensor(self, dtype=sorted_sequence.dtype, device=sorted_sequence.device)
    index = searchsorted(sorted_sequence, value.reshape(1), out_int32=out_int32, right=right, side=side, sorter=sorter)
    return index.reshape(())


@decomposes(aten.bucketize.Tensor)
def bucketize(self: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """Returns how many boundaries are below each value, or not above it if ``right``."""
    return searchsorted(boundaries, self, out_int32=out_int32, right=right)


@decomposes(aten.bucketize.Scalar)
def bucketize_scalar(self: float, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """Returns how many boundaries are below the value, or not above it if ``right``."""
    return searchsorted_scalar(boundaries, self, out_int32=out_int32, right=right)
