"""Decompositions of order statistics and binary searches into sorts and comparisons."""

import torch
from torch import Tensor

from fx_onnx.decompositions._sizes import is_known
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
    """Returns the k-th smallest element: the last of the k smallest. NaN is larger than all numbers."""
    if self.dim() == 0:
        return _of_scalar(self)
    nan = self.isnan()
    is_float = self.dtype.is_floating_point
    values, indices = torch.topk(self.masked_fill(nan, float("inf")) if is_float else self, k, dim, largest=False)
    value = values.narrow(dim, k - 1, 1)
    if is_float:
        value = value.masked_fill((~nan).sum(dim, keepdim=True) < k, float("nan"))
    return _squeezed(value, indices.narrow(dim, k - 1, 1), dim, keepdim)


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


def _with_nan_if_empty(self: Tensor) -> Tensor:
    """Returns the flattened tensor, with one NaN if it is a tensor of floats without elements."""
    flat = self.reshape(-1)
    missing = torch.sym_max(1 - flat.numel(), 0)
    if not self.dtype.is_floating_point or is_known(missing, 0):
        return flat
    return torch.cat((flat, flat.new_full((missing,), float("nan"))))


@decomposes(aten.median.default)
def median(self: Tensor) -> Tensor:
    """Returns the lower of the two middle elements of the flattened tensor; NaN if there are none."""
    return median_dim(_with_nan_if_empty(self), 0)[0]


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
    """Returns the lower of the two middle elements of the flattened tensor that are not NaN; NaN if there are none."""
    return nanmedian_dim(_with_nan_if_empty(self), 0)[0]


@decomposes(aten.quantile.default, aten.quantile.scalar)
def quantile(
    self: Tensor, q: Tensor | float, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """Returns the elements at q of the way from the smallest to the largest; NaN if an element is NaN."""
    q = q if isinstance(q, Tensor) else self.new_full((), q)
    tensor, axis = _along(self, dim)
    nan = tensor.isnan().any(axis, keepdim=True)
    values = _at(tensor.sort(axis)[0], q, tensor.shape[axis], axis, interpolation).masked_fill(nan, float("nan"))
    return _quantiles_first(values, axis, q.dim(), self.dim() if dim is None else min(self.dim(), 1), keepdim)


@decomposes(aten.nanquantile.default, aten.nanquantile.scalar)
def nanquantile(
    self: Tensor, q: Tensor | float, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """Returns the quantiles of the elements that are not NaN; NaN if all are NaN."""
    q = q if isinstance(q, Tensor) else self.new_full((), q)
    tensor, axis = _along(self, dim)
    nan = tensor.isnan()
    count, ordered = (~nan).sum(axis, keepdim=True), tensor.masked_fill(nan, float("inf")).sort(axis)[0]
    values = _at(ordered, q, count, axis, interpolation).masked_fill(count == 0, float("nan"))
    return _quantiles_first(values, axis, q.dim(), self.dim() if dim is None else min(self.dim(), 1), keepdim)


def _along(self: Tensor, dim: int | None) -> tuple[Tensor, int]:
    """Returns a tensor and the axis of its quantiles: the flattened one if there is no axis."""
    return (self.reshape(-1), 0) if dim is None or self.dim() == 0 else (self, dim % self.dim())


def _at(ordered: Tensor, q: Tensor, count: int | Tensor, dim: int, interpolation: str) -> Tensor:
    """Returns the quantiles of the first ``count`` elements along dim, which has the size of q then."""
    sizes = list(ordered.shape)
    sizes[dim] = q.numel()
    ranks = q.reshape([-1 if axis == dim else 1 for axis in range(len(sizes))]) * (count - 1)
    ranks = ranks.clamp(min=0).expand(sizes)
    rounded = {"lower": torch.floor, "higher": torch.ceil, "nearest": torch.round}.get(interpolation)
    if rounded is not None:
        return ordered.gather(dim, rounded(ranks).to(torch.int64))
    below = ranks.to(torch.int64)
    weight = ranks - below if interpolation == "linear" else torch.full_like(ranks, 0.5)
    return ordered.gather(dim, below).lerp(ordered.gather(dim, ranks.ceil().to(torch.int64)), weight)


def _quantiles_first(values: Tensor, dim: int, rank_of_q: int, reduced: int, keepdim: bool) -> Tensor:
    """Returns values with the axis of q first, or without it, and ``reduced`` axes of size 1 in place of dim if kept.

    torch keeps no axis of a 0-d tensor.
    """
    values = values.movedim(dim, 0)
    for _ in range(reduced if keepdim else 0):
        values = values.unsqueeze(dim + 1)
    return values if rank_of_q else values.select(0, 0)


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
