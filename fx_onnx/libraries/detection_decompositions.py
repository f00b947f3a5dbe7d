"""Decompositions of torchvision's pooling of regions of interest and deformable convolution."""

import math

import torch
from torch import Tensor

from fx_onnx.decompositions.registry import decomposes


def _bin_masks(first: Tensor, extent: Tensor, bins: int, size: int) -> Tensor:
    """Returns (K, bins, size): whether each bin of a region, extended to whole pixels, contains a pixel of an axis."""
    edges = torch.arange(bins + 1, device=first.device)
    bin_size = (extent / bins).unsqueeze(1)
    starts = (edges[:-1] * bin_size).floor() + first.unsqueeze(1)
    ends = (edges[1:] * bin_size).ceil() + first.unsqueeze(1)
    pixels = torch.arange(size, device=first.device)
    return (pixels >= starts.unsqueeze(2)) & (pixels < ends.unsqueeze(2))


def _round_half_away(number: Tensor) -> Tensor:
    """Returns the nearest integers, with halves away from zero."""
    return number.sign() * (number.abs() + 0.5).floor()


def _row_and_column_masks(
    rois: Tensor, scale: float, bins: tuple[int, int], size: tuple[int, int], inclusive: int
) -> tuple[Tensor, Tensor]:
    """Returns, for each region, the rows and the columns of its bins.

    ``inclusive`` is 1 if the last pixel belongs to the region, and 0 otherwise.
    """
    x1, y1, x2, y2 = _round_half_away(rois[:, 1:] * scale).unbind(1)
    height, width = ((last - first + inclusive).clamp(min=1) for first, last in ((y1, y2), (x1, x2)))
    return _bin_masks(y1, height, bins[0], size[0]), _bin_masks(x1, width, bins[1], size[1])


def _map_of_each_region(input: Tensor, rois: Tensor) -> Tensor:
    """Returns (K, C, H, W): the feature map that each region reads."""
    return input.index_select(0, rois[:, 0].to(torch.int64))


def _channel_mapping(rois: Tensor, channels: int, height: int, width: int) -> Tensor:
    """Returns which channel each bin reads, the same for all regions."""
    own = torch.arange(channels, dtype=torch.int32, device=rois.device)
    return own.reshape(1, -1, height, width).expand(rois.shape[0], -1, -1, -1)


@decomposes("torchvision::roi_pool")
def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """Returns the largest value in each bin, and its index in the plane.

    It finds the best column of each row first, then the best row.
    """
    height, width = input.shape[2:]
    rows, columns = _row_and_column_masks(rois, spatial_scale, (pooled_height, pooled_width), (height, width), 1)
    values = torch.where(
        columns[:, None, None], _map_of_each_region(input, rois).unsqueeze(3), -math.inf
    )  # (K, C, H, pw, W)
    best, column = values.max(4)
    best, row = torch.where(rows[:, None, :, :, None], best.unsqueeze(2), -math.inf).max(3)  # of (K, C, ph, H, pw)
    column = column.unsqueeze(2).expand(-1, -1, pooled_height, -1, -1).gather(3, row.unsqueeze(3)).squeeze(3)
    empty = ~(rows.any(2)[:, None, :, None] & columns.any(2)[:, None, None])
    position = torch.where(empty, -1, row * width + column)
    return torch.where(empty, 0.0, best), position.to(torch.int32)


@decomposes("torchvision::ps_roi_pool")
def ps_roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """Returns the mean of each bin.

    Each bin reads its own channels. Bins end before the last row and the last column, as in torchvision.
    """
    channels, height, width = input.shape[1:]
    bins = (pooled_height, pooled_width)
    rows, columns = _row_and_column_masks(rois, spatial_scale, bins, (height - 1, width - 1), 0)
    maps = _map_of_each_region(input[:, :, : height - 1, : width - 1], rois)
    maps = maps.unflatten(1, (channels // math.prod(bins), *bins))
    within = (rows[:, :, None, :, None] & columns[:, None, :, None, :]).unsqueeze(1)  # (K, 1, ph, pw, H - 1, W - 1)
    count = within.sum((4, 5)).clamp(min=1)
    pooled = torch.where(within, maps, 0.0).sum((4, 5)) / count
    return pooled, _channel_mapping(rois, channels, *bins)


@decomposes("torchvision::ps_roi_align")
def ps_roi_align(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int
) -> tuple[Tensor, Tensor]:
    """Applies ``roi_align`` with ``aligned=True`` to all channels, then reads the channels that belong to each bin."""
    bins = (pooled_height, pooled_width)
    aligned = torch.ops.torchvision.roi_align(input, rois, spatial_scale, *bins, sampling_ratio, True)
    planes = aligned.unflatten(1, (input.shape[1] // math.prod(bins), math.prod(bins))).flatten(3)
    own = planes.diagonal(0, 2, 3).unflatten(2, bins)
    if sampling_ratio <= 0:  # an empty region has no samples, so its mean is NaN
        extents = rois[:, 3:] - rois[:, 1:3]
        own = torch.where((extents <= 0).any(1)[:, None, None, None], math.nan, own)
    return own, _channel_mapping(rois, input.shape[1], *bins)


def _bilinear_samples(planes: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Returns planes (N, G, C, H, W) at the positions y and x (N, G, P).

    Values between pixels are interpolated linearly; pixels beyond the edges are 0.
    """
    height, width = planes.shape[3:]
    flat = planes.flatten(3)
    top, left = y.floor(), x.floor()
    total = torch.zeros((), dtype=planes.dtype, device=planes.device)
    for row, row_weight in ((top, 1 - (y - top)), (top + 1, y - top)):
        for column, column_weight in ((left, 1 - (x - left)), (left + 1, x - left)):
            inside = (row >= 0) & (row <= height - 1) & (column >= 0) & (column <= width - 1)
            position = row.clamp(0, height - 1) * width + column.clamp(0, width - 1)
            index = position.to(torch.int64).unsqueeze(2).expand(-1, -1, planes.shape[2], -1)
            weight = torch.where(inside, row_weight * column_weight, 0.0)
            total = total + flat.gather(3, index) * weight.unsqueeze(2)
    return total


@decomposes("torchvision::deform_conv2d")
def deform_conv2d(
    input: Tensor, weight: Tensor, offset: Tensor, mask: Tensor, bias: Tensor,
    stride_h: int, stride_w: int, pad_h: int, pad_w: int, dilation_h: int, dilation_w: int,
    groups: int, offset_groups: int, use_mask: bool,
) -> Tensor:  # fmt: skip
    """Returns the product of the weights and the values that the taps (kernel elements) read at their offsets."""
    batch, channels = input.shape[:2]
    outputs, _, kernel_h, kernel_w = weight.shape
    rows, columns = offset.shape[2:]
    taps, places = kernel_h * kernel_w, rows * columns
    moved = offset.reshape([batch, offset_groups, kernel_h, kernel_w, 2, rows, columns])
    y, x = moved.unbind(4)
    y = y + (_steps(kernel_h, dilation_h)[:, None, None, None] + _steps(rows, stride_h)[:, None] - pad_h)
    x = x + (_steps(kernel_w, dilation_w)[:, None, None] + _steps(columns, stride_w) - pad_w)
    grouped = input.reshape([batch, offset_groups, channels // offset_groups, *input.shape[2:]])
    read = _bilinear_samples(grouped, y.flatten(2), x.flatten(2)).unflatten(3, (taps, places))
    if use_mask:
        read = read * mask.reshape([batch, offset_groups, 1, taps, places])
    blocks = read.reshape([batch, groups, channels // groups * taps, places])
    result = torch.matmul(weight.reshape([groups, outputs // groups, -1]), blocks)
    return result.reshape([batch, outputs, rows, columns]) + bias.reshape([-1, 1, 1])


def _steps(count: int, step: int) -> Tensor:
    """Returns ``count`` multiples of ``step``, from 0."""
    return torch.arange(count) * step
