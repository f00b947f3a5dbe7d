"""Counts per bin: histogram, histc, histogramdd."""

import torch
from torch import Tensor

from fx_onnx.decompositions.registry import decomposes

aten = torch.ops.aten


def _limits(self: Tensor, low: float | None, high: float | None) -> tuple[Tensor, Tensor]:
    """The range of the bins: given, or that of the data; one number is widened by half to each side."""
    if low is not None and high is not None and low != high:
        return self.new_full((), low), self.new_full((), high)
    if low is not None and (low != 0 or high != 0) or self.numel() == 0:
        first = last = self.new_full((), low or 0)
    else:
        first, last = self.min(), self.max()
    same = first == last
    return torch.where(same, first - 0.5, first), torch.where(same, last + 0.5, last)


def _edges(first: Tensor, last: Tensor, bins: int) -> Tensor:
    return torch.linspace(first, last, bins + 1, dtype=first.dtype)  # type: ignore[call-overload, no-any-return]


def _count(values: Tensor, edges: Tensor, weight: Tensor | None) -> Tensor:
    """How much weight is in each bin [edge, next edge), the last of which has both its edges."""
    bins = edges.shape[0] - 1
    values = values.reshape(-1)
    inside = (values >= edges[0]) & (values <= edges[-1])
    place = (torch.searchsorted(edges, values, right=True) - 1).clamp(0, bins - 1)
    weight = torch.ones_like(values) if weight is None else weight.reshape(-1).to(values.dtype)
    return torch.zeros_like(edges[:-1]).scatter_add(0, place, weight.masked_fill(~inside, 0))


def _density(counts: Tensor, edges: Tensor, density: bool) -> Tensor:
    return counts / counts.sum() / edges.diff() if density else counts


@decomposes(aten.histogram.bins_tensor)
def histogram(
    self: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    """The weight between each two neighbouring edges."""
    return _density(_count(self, bins, weight), bins, density), bins.clone()


@decomposes(aten.histogram.bin_ct)
def histogram_count(
    self: Tensor,
    bins: int = 100,
    *,
    range: list[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:
    """The weight in each of so many bins of one width."""
    edges = _edges(*_limits(self, *(range or (None, None))), bins)
    return _density(_count(self, edges, weight), edges, density), edges


@decomposes(aten.histc.default)
def histc(self: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements are in each of so many bins of one width; NaN is in none."""
    first, last = _limits(self, min, max) if min != max or min != 0 else _limits(self, None, None)
    values = self.reshape(-1)
    place = ((values - first) * bins / (last - first)).floor().to(torch.int64).clamp(0, bins - 1)
    inside = (values >= first) & (values <= last)
    return torch.zeros_like(values[:1]).expand(bins).scatter_add(0, place, inside.to(self.dtype))
