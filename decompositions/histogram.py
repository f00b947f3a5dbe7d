"""Decompositions of histograms into counts of the elements in each bin."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fx_onnx.decompositions.registry import aten, decomposes


def _limits(self: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Returns the given range of the bins, or the range of the data if both given limits are equal.

    A range of a single number is widened by 1 on both sides.
    """
    if isinstance(low, torch.SymFloat) or isinstance(high, torch.SymFloat):
        given, computed = (self.new_full((), low), self.new_full((), high)), _limits(self, 0, 0)
        same = given[0] == given[1]
        return torch.where(same, computed[0], given[0]), torch.where(same, computed[1], given[1])
    if low != high:
        return self.new_full((), low), self.new_full((), high)
    if self.numel() == 0:
        return self.new_full((), -1), self.new_full((), 1)
    first, last = self.min(), self.max()
    same = first == last
    return torch.where(same, first - 1, first), torch.where(same, last + 1, last)


def _count(values: Tensor, edges: Tensor, weight: Tensor | None) -> Tensor:
    """Returns the sum of weights in each bin [edge, next edge); the last bin includes its upper edge."""
    bins = edges.shape[0] - 1
    values = values.reshape(-1)
    inside = (values >= edges[0]) & (values <= edges[-1])
    index = (torch.searchsorted(edges, values, right=True) - 1).clamp(0, bins - 1)
    weight = torch.ones_like(values) if weight is None else weight.reshape(-1).to(values.dtype)
    return torch.zeros_like(edges[:-1]).scatter_add(0, index, weight.masked_fill(~inside, 0))


def _density(counts: Tensor, edges: Tensor, density: bool) -> Tensor:
    """Returns the counts, divided to form a probability density if ``density``."""
    return counts / counts.sum() / edges.diff() if density else counts


@decomposes(aten.histogram.bins_tensor)
def histogram(
    self: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns the sum of weights between neighbouring edges, and the edges."""
    return _density(_count(self, bins, weight), bins, density), bins.clone()


@decomposes(aten.histogram.bin_ct)
def histogram_of_count(
    self: Tensor,
    bins: int = 100,
    *,
    range: list[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:
    """Returns the sum of weights in each of ``bins`` bins of equal width, and the edges.

    The bins cover the given range, or that of the data.
    """
    edges = _edges(self.reshape(-1), bins, range)
    return _density(_count(self, edges, weight), edges, density), edges


def _edges(values: Tensor, bins: int, limits: Sequence[float] | None) -> Tensor:
    """Returns the edges of bins of equal width over the limits.

    Without limits the bins cover the range of the data, or [0, 1] if there is no data.
    """
    if limits is not None:
        first, last = values.new_full((), limits[0]), values.new_full((), limits[1])
    elif values.numel() == 0:
        first, last = values.new_zeros(()), values.new_ones(())
    else:
        first, last = values.min(), values.max()
    same = first == last
    first, last = torch.where(same, first - 0.5, first), torch.where(same, last + 0.5, last)
    steps = torch.arange(bins + 1, dtype=values.dtype, device=values.device)
    half = steps <= bins // 2  # computed from the nearer end, as torch does
    step = (last - first) / bins
    return torch.where(half, first + steps * step, last - (bins - steps) * step)


@decomposes(aten.histc.default)
def histc(self: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Returns the number of elements in each of ``bins`` bins of equal width; NaN is in no bin."""
    first, last = _limits(self, min, max)
    values = self.reshape(-1)
    index = ((values - first) * bins / (last - first)).floor().to(torch.int64).clamp(0, bins - 1)
    inside = (values >= first) & (values <= last)
    return self.new_zeros(bins).scatter_add(0, index, inside.to(self.dtype))


@decomposes(aten._histogramdd_bin_edges.default)
def histogramdd_bin_edges(
    self: Tensor,
    bins: list[int],
    *,
    range: list[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> list[Tensor]:
    """Returns the edges of bins of equal width along each coordinate, over the given range or that of the data."""
    points = self.reshape(-1, self.shape[-1])
    limits = [None] * len(bins) if range is None else list(zip(range[::2], range[1::2], strict=True))
    return [_edges(points[:, axis], count, limits[axis]) for axis, count in enumerate(bins)]


@decomposes(aten._histogramdd_from_bin_tensors.default)
def histogramdd(self: Tensor, bins: list[Tensor], *, weight: Tensor | None = None, density: bool = False) -> Tensor:
    """Returns the sum of weights of the points in each box between neighbouring edges.

    The last bin of each coordinate includes its upper edge.
    """
    points = self.reshape(-1, self.shape[-1])
    weights = torch.ones_like(points[:, 0]) if weight is None else weight.reshape(-1).to(self.dtype)
    sizes = [edges.shape[0] - 1 for edges in bins]
    index = torch.zeros_like(points[:, 0], dtype=torch.int64)
    volume = self.new_ones(())
    for axis, (edges, size) in enumerate(zip(bins, sizes, strict=True)):
        values = points[:, axis]
        inside = (values >= edges[0]) & (values <= edges[-1])
        weights = weights.masked_fill(~inside, 0)
        position = (torch.searchsorted(edges, values.contiguous(), right=True) - 1).clamp(0, size - 1)
        index = index * size + position
        volume = volume.unsqueeze(-1) * edges.diff()
    counts = self.new_zeros(math.prod(sizes)).scatter_add(0, index, weights).reshape(sizes)
    return counts / counts.sum() / volume if density else counts


@decomposes(aten._histogramdd_from_bin_cts.default)
def histogramdd_of_counts(
    self: Tensor,
    bins: list[int],
    *,
    range: list[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Tensor:
    """Returns the sum of weights of the points in each box of a grid of equal boxes."""
    edges = histogramdd_bin_edges(self, bins, range=range)
    return histogramdd(self, edges, weight=weight, density=density)
