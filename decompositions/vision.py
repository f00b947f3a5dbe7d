"""Decompositions of operators on images into reshapes and gathers."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fx_onnx.decompositions._cubic_kernel import cubic_from_1_to_2, cubic_to_1
from fx_onnx.decompositions._sizes import at_least, is_known
from fx_onnx.decompositions.registry import aten, decomposes


@decomposes(aten.pixel_shuffle.default)
def pixel_shuffle(self: Tensor, upscale_factor: int) -> Tensor:
    """Returns (..., C, H r, W r) from (..., C r r, H, W)."""
    *lead, channels, height, width = self.shape
    r, n = upscale_factor, len(lead)
    blocks = self.reshape([*lead, channels // (r * r), r, r, height, width])
    rows = blocks.permute(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return rows.reshape([*lead, channels // (r * r), height * r, width * r])


@decomposes(aten.pixel_unshuffle.default)
def pixel_unshuffle(self: Tensor, downscale_factor: int) -> Tensor:
    """Returns (..., C r r, H, W) from (..., C, H r, W r)."""
    *lead, channels, height, width = self.shape
    r, n = downscale_factor, len(lead)
    blocks = self.reshape([*lead, channels, height // r, r, width // r, r])
    planes = blocks.permute(*range(n), n, n + 2, n + 4, n + 1, n + 3)
    return planes.reshape([*lead, channels * r * r, height // r, width // r])


@decomposes(aten.channel_shuffle.default, aten.native_channel_shuffle.default)
def channel_shuffle(self: Tensor, groups: int) -> Tensor:
    """Moves channel j of group i to channel i of group j."""
    batch, channels, *rest = self.shape
    return self.reshape([batch, groups, channels // groups, *rest]).transpose(1, 2).reshape(self.shape)


@decomposes(aten.im2col.default)
def im2col(
    self: Tensor,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Tensor:
    """Returns each block of the image as a column: (N, C kh kw, blocks)."""
    image = self if self.dim() == 4 else self.unsqueeze(0)
    if any(padding):
        image = torch.constant_pad_nd(image, [padding[1], padding[1], padding[0], padding[0]])
    counts = []
    for axis, (kernel, step, skip) in enumerate(zip(kernel_size, dilation, stride, strict=True)):
        torch._check(kernel > 0)
        first = torch.arange(0, image.shape[2 + 2 * axis] - step * (kernel - 1), skip, device=self.device)
        count = first.shape[0]
        places = torch.arange(kernel, device=self.device).unsqueeze(1) * step + first
        before, after = image.shape[: 2 + 2 * axis], image.shape[3 + 2 * axis :]
        image = image.index_select(2 + 2 * axis, places.flatten()).reshape([*before, kernel, count, *after])
        counts.append(count)
    batch, channels = image.shape[:2]
    columns = image.permute(0, 1, 2, 4, 3, 5)
    columns = columns.reshape([batch, channels * math.prod(kernel_size), counts[0] * counts[1]])
    return columns if self.dim() == 4 else columns.squeeze(0)


# ---------------------------------------------------------------- sampling by a grid


@decomposes(aten.affine_grid_generator.default)
def affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """Returns theta @ (x, y[, z], 1) for the positions of an image.

    The coordinates -1 and 1 are the centers of the outer pixels if ``align_corners``, and their outer edges otherwise.
    """
    spatial = list(size)[2:]
    axes = len(spatial)
    coordinates = []
    for axis in reversed(range(axes)):
        count = spatial[axis]
        position = torch.arange(count, device=theta.device).to(theta.dtype)
        if align_corners:
            position = position * 2 / at_least(count - 1, 1) - 1 if not is_known(count, 1) else position
        else:
            position = (position * 2 + 1) / count - 1
        shape = [count if other == axis else 1 for other in range(axes)]
        coordinates.append(position.reshape(shape).expand(spatial))
    coordinates.append(torch.ones_like(coordinates[0]))
    places = torch.stack(coordinates, -1).reshape([1, math.prod(spatial), axes + 1])
    return torch.matmul(places, theta.transpose(1, 2)).reshape([theta.shape[0], *spatial, axes])


def _unnormalize(position: Tensor, size: int, align_corners: bool) -> Tensor:
    """Returns the positions in pixels of coordinates from -1 to 1."""
    return (position + 1) / 2 * (size - 1) if align_corners else ((position + 1) * size - 1) / 2


def _reflect(position: Tensor, size: int, align_corners: bool) -> Tensor:
    """Returns the position, reflected into the image at the centers (align_corners) or edges of the outer pixels."""
    low, span = (0.0, size - 1) if align_corners else (-0.5, size)
    if is_known(span, 0):
        return torch.zeros_like(position)
    distance = (position - low).abs()
    turns = (distance / span).floor()
    rest = distance - turns * span
    return torch.where(torch.remainder(turns, 2) == 0, rest + low, span - rest + low)


def _apply_padding_mode(position: Tensor, size: int, padding_mode: int, align_corners: bool) -> Tensor:
    """Returns the position to read: unchanged (padding mode 0), clamped to the border (1), or reflected (2)."""
    if padding_mode == 0:
        return position
    if padding_mode == 2:
        position = _reflect(position, size, align_corners)
    return position.clamp(0, size - 1)


def _read(input: Tensor, places: Sequence[Tensor]) -> Tensor:
    """Returns input[n, c, places[n]...], and 0 outside the image.

    Args:
        places: for each spatial axis, integer positions of shape (N, out...).
    """
    spatial = input.shape[2:]
    flat = torch.zeros_like(places[0], dtype=torch.int64)
    within = torch.ones_like(places[0], dtype=torch.bool)
    for position, size in zip(places, spatial, strict=True):
        within = within & (position >= 0) & (position <= size - 1)
        flat = flat * size + position.clamp(0, size - 1).to(torch.int64)
    batch, channels = input.shape[:2]
    outs = flat.shape[1:]
    index = flat.flatten(1).unsqueeze(1).expand(-1, channels, -1)
    values = torch.gather(input.flatten(2), 2, index).reshape([batch, channels, *outs])
    return torch.where(within.unsqueeze(1), values, torch.zeros((), dtype=input.dtype))


def _cubic_weights(t: Tensor) -> list[Tensor]:
    """Returns the weights of the cubic convolution kernel at the distances 1 + t, t, 1 - t and 2 - t."""
    a = -0.75
    return [cubic_from_1_to_2(t + 1, a), cubic_to_1(t, a), cubic_to_1(1 - t, a), cubic_from_1_to_2(2 - t, a)]


@decomposes(aten.grid_sampler.default, aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """Returns the input, interpolated at the positions of the grid.

    The last axis of the grid holds coordinates from -1 to 1, x first. The result is the nearest pixel, or a sum of
    neighbours weighted by a linear or cubic kernel.
    """
    spatial = input.shape[2:]
    axes = len(spatial)
    places = [_unnormalize(grid[..., axes - 1 - axis], size, align_corners) for axis, size in enumerate(spatial)]

    def bounded(position: Tensor, axis: int) -> Tensor:
        return _apply_padding_mode(position, spatial[axis], padding_mode, align_corners)

    if interpolation_mode == 1:
        return _read(input, [bounded(position, axis).round() for axis, position in enumerate(places)])
    taps: list[list[tuple[Tensor, Tensor]]] = []
    for axis, position in enumerate(places):
        if interpolation_mode == 0:
            position = bounded(position, axis)
            first = position.floor()
            taps.append([(first, 1 - (position - first)), (first + 1, position - first)])
        else:
            first = position.floor()
            weights = _cubic_weights(position - first)
            taps.append([(bounded(first + (i - 1), axis), weight) for i, weight in enumerate(weights)])
    return _weighted_reads(input, taps)


def _weighted_reads(input: Tensor, taps: Sequence[Sequence[tuple[Tensor, Tensor]]]) -> Tensor:
    """Returns the sum over all combinations of one tap (position, weight) for each axis."""
    combinations: list[tuple[list[Tensor], Tensor | None]] = [([], None)]
    for axis in taps:
        combinations = [
            ([*places, position], weight if product is None else product * weight)
            for places, product in combinations
            for position, weight in axis
        ]
    terms = [_read(input, places) * weight.unsqueeze(1) for places, weight in combinations if weight is not None]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
