"""torchvision beside a CPU build of PyTorch, where its wheel from PyPI, built for CUDA, cannot load its library.

`from tests.torchvision_cpu import torchvision` imports it. Where its library loads, nothing else happens; where it does
not, torchvision finds the operators that this file declares, with plain kernels written after their definitions. What
it says of their shapes is its own. Where torchvision is not installed, the tests of the importing file are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

_ROI = "Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_BACK = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_BINS = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_CONV = (
    "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask"
)
_PLANES = "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias"

# All operators that torchvision's Python speaks of; those for training and quantisation have no kernel here.
SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    f"roi_align({_ROI}, int sampling_ratio, bool aligned) -> Tensor",
    f"qroi_align(Tensor input, Tensor rois, float input_scale, int input_zero_point, float rois_scale, "
    f"int rois_zero_point, {_BINS}, int sampling_ratio, bool aligned) -> Tensor",
    f"roi_pool({_ROI}) -> (Tensor, Tensor)",
    f"ps_roi_align({_ROI}, int sampling_ratio) -> (Tensor, Tensor)",
    f"ps_roi_pool({_ROI}) -> (Tensor, Tensor)",
    f"deform_conv2d({_PLANES}, {_CONV}) -> Tensor",
    f"_roi_align_backward(Tensor grad, Tensor rois, {_BINS}, {_BACK}, int sampling_ratio, bool aligned) -> Tensor",
    f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {_BINS}, {_BACK}) -> Tensor",
    f"_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_BINS}, int sampling_ratio, {_BACK}) "
    "-> Tensor",
    f"_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_BINS}, {_BACK}) -> Tensor",
    f"_deform_conv2d_backward(Tensor grad, {_PLANES}, {_CONV}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    "_cuda_version() -> int",
)


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The boxes, by falling score, of which none before overlaps too much with them."""
    x1, y1, x2, y2 = dets.unbind(1)
    areas = (x2 - x1) * (y2 - y1)
    dead = torch.zeros(len(dets), dtype=torch.bool)
    keep = []
    for i in scores.argsort(descending=True, stable=True).tolist():
        if dead[i]:
            continue
        keep.append(i)
        width = (torch.minimum(x2[i], x2) - torch.maximum(x1[i], x1)).clamp(min=0)
        height = (torch.minimum(y2[i], y2) - torch.maximum(y1[i], y1)).clamp(min=0)
        common = width * height
        dead |= (common / (areas[i] + areas - common)).double() > iou_threshold
    return torch.tensor(keep, dtype=torch.int64)


def _bilinear_means(start: float, bin_size: float, bins: int, samples: int, size: int, empty: float) -> Tensor:
    """(bins, size): how much each pixel of an axis weighs in the mean of a bin's equidistant samples.

    A sample between the outer pixels and one pixel beyond takes the outer pixel's value; any farther it is 0. Without
    samples the mean is `empty`.
    """
    weights = torch.full((bins, size), 0.0 if samples > 0 else empty, dtype=torch.float64)
    for i in range(bins):
        for sample in range(samples):
            place = start + i * bin_size + (sample + 0.5) * bin_size / samples
            if place < -1 or place > size:
                continue
            place = max(place, 0.0)
            low = min(int(place), size - 1)
            high = min(low + 1, size - 1)
            rest = place - low if low < size - 1 else 0.0
            weights[i, low] += (1 - rest) / samples
            weights[i, high] += rest / samples
    return weights


def _aligned(
    input: Tensor, roi: list[float], scale: float, bins: tuple[int, int], ratio: int, offset: float, least: float,
    empty: float = 0.0,
) -> Tensor:  # fmt: skip
    """(C, bins): the mean of samples in each bin of one region of interest."""
    batch, x1, y1, x2, y2 = roi
    maps = input[int(batch)].double()
    weights = []
    for first, last, count, size in ((y1, y2, bins[0], maps.shape[1]), (x1, x2, bins[1], maps.shape[2])):
        start = first * scale - offset
        extent = max(last * scale - offset - start, least)
        samples = ratio if ratio > 0 else math.ceil(extent / count)
        weights.append(_bilinear_means(start, extent / count, count, samples, size, empty))
    return (weights[0] @ maps @ weights[1].T).to(input.dtype)


def roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """The mean of bilinear samples in each bin; without `aligned`, a region is 1 pixel wide and high at least."""
    offset, least = (0.5, -math.inf) if aligned else (0.0, 1.0)
    bins = (pooled_height, pooled_width)
    planes = [_aligned(input, roi, spatial_scale, bins, sampling_ratio, offset, least) for roi in rois.tolist()]
    return torch.stack(planes) if planes else input.new_empty((0, input.shape[1], *bins))


def _own_channels(planes: Tensor, bins: tuple[int, int]) -> Tensor:
    """(C ph pw, ph, pw) → (C, ph, pw): each bin from the channels that are its own."""
    height, width = bins
    apart = planes.reshape(-1, height, width, height, width)
    rows, columns = torch.arange(height)[:, None], torch.arange(width)
    return apart[:, rows, columns, rows, columns]


def _channel_mapping(count: int, channels: int, bins: tuple[int, int]) -> Tensor:
    own = torch.arange(channels, dtype=torch.int32).reshape(1, -1, *bins)
    return own.expand(count, -1, -1, -1).contiguous()


def ps_roi_align(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int
) -> tuple[Tensor, Tensor]:
    """`roi_align`, aligned, in which each bin reads channels of its own; NaN in a region without extent."""
    bins = (pooled_height, pooled_width)
    aligned = (
        _aligned(input, roi, spatial_scale, bins, sampling_ratio, 0.5, -math.inf, math.nan) for roi in rois.tolist()
    )
    planes = [_own_channels(each, bins) for each in aligned]
    channels = input.shape[1] // math.prod(bins)
    pooled = torch.stack(planes) if planes else input.new_empty((0, channels, *bins))
    return pooled, _channel_mapping(len(rois), input.shape[1], bins)


def _round(number: float) -> int:
    """Halves away from zero, as C rounds."""
    return int(math.copysign(math.floor(abs(number) + 0.5), number))


def _edges(start: int, extent: float, bins: int, size: int) -> list[tuple[int, int]]:
    """The whole pixels that each of the bins of one axis touches, of those that there are."""
    bin_size = torch.tensor(extent, dtype=torch.float32) / bins
    firsts = [math.floor(i * bin_size) + start for i in range(bins)]
    lasts = [math.ceil((i + 1) * bin_size) + start for i in range(bins)]
    return [(min(max(a, 0), size), min(max(b, 0), size)) for a, b in zip(firsts, lasts, strict=True)]


def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """The largest value in each bin of whole pixels, and where it is; an empty bin is 0, and nowhere (-1)."""
    size = (len(rois), input.shape[1], pooled_height, pooled_width)
    pooled, argmax = input.new_zeros(size), torch.full(size, -1, dtype=torch.int32)
    height, width = input.shape[2:]
    for k, (batch, *corners) in enumerate(rois.tolist()):
        x1, y1, x2, y2 = (_round(corner * spatial_scale) for corner in corners)
        for i, (top, bottom) in enumerate(_edges(y1, max(y2 - y1 + 1, 1), pooled_height, height)):
            for j, (left, right) in enumerate(_edges(x1, max(x2 - x1 + 1, 1), pooled_width, width)):
                if bottom > top and right > left:
                    values, places = input[int(batch), :, top:bottom, left:right].flatten(1).max(1)
                    pooled[k, :, i, j] = values
                    rows, columns = places // (right - left) + top, places % (right - left) + left
                    argmax[k, :, i, j] = (rows * width + columns).int()
    return pooled, argmax


def ps_roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """The mean of each bin of whole pixels, which reads channels of its own; an empty bin is 0.

    torchvision's bins end before the last row and the last column.
    """
    bins = (pooled_height, pooled_width)
    channels = input.shape[1] // math.prod(bins)
    pooled = input.new_zeros((len(rois), channels, *bins))
    planes = input.reshape(len(input), channels, *bins, *input.shape[2:])
    height, width = input.shape[2] - 1, input.shape[3] - 1
    for k, (batch, *corners) in enumerate(rois.tolist()):
        x1, y1, x2, y2 = (_round(corner * spatial_scale) for corner in corners)
        for i, (top, bottom) in enumerate(_edges(y1, max(y2 - y1, 1), pooled_height, height)):
            for j, (left, right) in enumerate(_edges(x1, max(x2 - x1, 1), pooled_width, width)):
                if bottom > top and right > left:
                    pooled[k, :, i, j] = planes[int(batch), :, i, j, top:bottom, left:right].mean((1, 2))
    return pooled, _channel_mapping(len(rois), input.shape[1], bins)


def _bilinear(planes: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """planes (N, G, C, H, W) at the places y and x (N, G, P), a pixel beyond the edges being 0: (N, G, C, P)."""
    height, width = planes.shape[-2:]
    total = planes.new_zeros((*planes.shape[:3], y.shape[-1]))
    for row, down in ((y.floor(), 1 - (y - y.floor())), (y.floor() + 1, y - y.floor())):
        for column, across in ((x.floor(), 1 - (x - x.floor())), (x.floor() + 1, x - x.floor())):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            place = row.clamp(0, height - 1).long() * width + column.clamp(0, width - 1).long()
            values = planes.flatten(3).gather(3, place.unsqueeze(2).expand(-1, -1, planes.shape[2], -1))
            total = total + values * (down * across * inside).unsqueeze(2)
    return total


def deform_conv2d(
    input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor,
    stride_h: int, stride_w: int, pad_h: int, pad_w: int, dilation_h: int, dilation_w: int,
    groups: int, offset_groups: int, use_mask: bool,
) -> Tensor:  # fmt: skip
    """A convolution each of whose taps reads where its offset leads, times its mask."""
    batch, channels, _, _ = input.shape
    outputs, _, kernel_h, kernel_w = weight.shape
    rows, columns = offset.shape[-2:]
    taps = kernel_h * kernel_w
    moved = offset.reshape(batch, offset_groups, kernel_h, kernel_w, 2, rows, columns)
    i = torch.arange(kernel_h)[:, None, None, None] * dilation_h + torch.arange(rows)[:, None] * stride_h - pad_h
    j = torch.arange(kernel_w)[:, None, None] * dilation_w + torch.arange(columns) * stride_w - pad_w
    y, x = (moved[:, :, :, :, 0] + i).flatten(2), (moved[:, :, :, :, 1] + j).flatten(2)
    planes = input.reshape(batch, offset_groups, channels // offset_groups, *input.shape[2:])
    values = _bilinear(planes, y, x).reshape(batch, offset_groups, -1, taps, rows * columns)
    if use_mask:
        values = values * mask.reshape(batch, offset_groups, 1, taps, rows * columns)
    grouped = values.reshape(batch, groups, channels // groups * taps, rows * columns)
    result = weight.reshape(groups, outputs // groups, -1) @ grouped
    return result.reshape(batch, outputs, rows, columns) + bias.reshape(-1, 1, 1)


_KERNELS: dict[str, Callable[..., Any]] = {
    "nms": nms, "roi_align": roi_align, "roi_pool": roi_pool, "ps_roi_align": ps_roi_align,
    "ps_roi_pool": ps_roi_pool, "deform_conv2d": deform_conv2d, "_cuda_version": lambda: -1,
}  # fmt: skip
_LIBRARIES: list[torch.library.Library] = []  # an operator lives as long as its library


def _declare() -> None:
    """Declares torchvision's operators, those of inference with a kernel."""
    library = torch.library.Library("torchvision", "DEF")
    _LIBRARIES.append(library)
    for schema in SCHEMAS:
        library.define(schema)
    for name, kernel in _KERNELS.items():
        library.impl(name, kernel, "CompositeExplicitAutograd" if name == "_cuda_version" else "CPU")


def _import() -> Any:
    """torchvision; in the place of a library of its own that does not load, it finds the operators above."""
    load = torch.ops.load_library

    def load_or_declare(path: str) -> None:
        try:
            load(path)
        except OSError:
            if "_C" not in str(path):
                raise
            _declare()

    torch.ops.load_library = load_or_declare
    try:
        return pytest.importorskip("torchvision", reason="torchvision is not installed")
    finally:
        torch.ops.load_library = load


torchvision = _import()
