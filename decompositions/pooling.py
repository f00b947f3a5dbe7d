"""Decompositions of pooling over windows of varying size or position, and of unpooling."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fx_onnx.decompositions._axis_products import matmul_along
from fx_onnx.decompositions._empty_results import decomposes_unless_empty
from fx_onnx.decompositions._sizes import at_least, is_known
from fx_onnx.decompositions._torch_private import statically_known_true
from fx_onnx.decompositions.registry import aten, decomposes


def _bounds(size: int, out: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Returns where each of the ``out`` windows of adaptive pooling over ``size`` elements begins and ends."""
    window, count = torch.arange(out, device=like.device), at_least(out, 1)
    return (window * size) // count, ((window + 1) * size + out - 1) // count


# ---------------------------------------------------------------- adaptive means


@decomposes_unless_empty(
    aten.adaptive_avg_pool1d.default,
    aten.adaptive_avg_pool2d.default,
    aten.adaptive_avg_pool3d.default,
    aten._adaptive_avg_pool2d.default,
    aten._adaptive_avg_pool3d.default,
)
def adaptive_avg_pool(self: Tensor, output_size: Sequence[int]) -> Tensor:
    """Returns the means over each axis in turn, as a matrix product with the weights of the windows.

    An infinite or NaN element makes other windows along its axis NaN, because the product multiplies it by zero.
    """
    for axis, out in enumerate(reversed(list(output_size)), 1):
        size = self.shape[-axis]
        if is_known(out, 1):
            self = self.mean(-axis, keepdim=True)
        elif not statically_known_true(out == size):
            self = _weighted_mean(self, -axis, size, out)
    return self


def _weighted_mean(self: Tensor, axis: int, size: int, out: int) -> Tensor:
    """Returns the means along ``axis``: the weights are 1 / length within the window, and 0 outside."""
    begin, end = _bounds(size, out, self)
    return _window_means(self, axis, begin, end, end - begin)


def _window_means(self: Tensor, axis: int, begin: Tensor, end: Tensor, count: Tensor | int) -> Tensor:
    """Returns the sums of windows along ``axis``, divided by a count, as a matrix product."""
    position = torch.arange(self.shape[axis], device=self.device).unsqueeze(1)
    weights = ((position >= begin) & (position < end)).to(self.dtype)
    weights = weights / (count.to(self.dtype) if isinstance(count, Tensor) else count)
    return matmul_along(self, axis, weights)


# ---------------------------------------------------------------- windows of a symbolic size or step


def _per_axis(numbers: Sequence[int], axes: int) -> list[int]:
    """Returns a number for each axis, from one for each or one for all."""
    return list(numbers) * axes if len(numbers) == 1 else list(numbers)


def _begins(size: int, reach: int, step: int, pad: int, ceil_mode: bool, like: Tensor) -> Tensor:
    """Returns where the windows that reach over ``reach`` elements begin; negative within the padding.

    With ``ceil_mode`` a last window may end beyond the padding, but begins before it.
    """
    last = size + 2 * pad - reach
    torch._check(last + (step - 1 if ceil_mode else 0) >= 0)
    end = torch.sym_min(last + step, size + pad) if ceil_mode else last + 1
    return torch.arange(0, end, step, device=like.device) - pad


def average_pool(
    self: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Tensor:
    """Returns the means over each axis in turn, as matrix products with the weights of the windows.

    An infinite or NaN element makes other windows along its axis NaN, because the products multiply it by zero.
    """
    axes = len(kernel_size)
    strides, pads = (_per_axis(counts, axes) for counts in (stride or kernel_size, padding))
    for axis, kernel, step, pad in zip(range(-axes, 0), kernel_size, strides, pads, strict=True):
        torch._check(kernel > 0)
        size = self.shape[axis]
        begin = _begins(size, kernel, step, pad, ceil_mode, self)
        end = begin + kernel
        count = torch.clamp(end, max=size + pad) - begin if count_include_pad else end.clamp(max=size) - begin.clamp(0)
        self = _window_means(self, axis, begin, end, count if divisor_override is None else 1)
    return self if divisor_override is None else self / divisor_override


def max_pool(
    self: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """Returns the largest element of each window, and its index in the flattened plane.

    A position in the padding repeats the first or the last element of the window.
    """
    axes, places = len(kernel_size), []
    strides, pads, spreads = (_per_axis(counts, axes) for counts in (stride or kernel_size, padding, dilation))
    for size, kernel, step, pad, spread in zip(self.shape[-axes:], kernel_size, strides, pads, spreads, strict=True):
        torch._check(kernel > 0)
        begin = _begins(size, spread * (kernel - 1) + 1, step, pad, ceil_mode, self).unsqueeze(1)
        position = begin + torch.arange(kernel, device=self.device) * spread
        first = torch.where(begin < 0, torch.remainder(begin, spread), begin)
        last = begin + (size - 1 - begin) // spread * spread
        places.append(torch.minimum(torch.maximum(position, first), last))
    return _max_and_indices(self, places)


# ---------------------------------------------------------------- maxima over gathered windows


def _max_and_indices(self: Tensor, places: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Returns the largest element of each window, and its index in the flattened plane.

    Args:
        places: for each spatial axis, positions of shape (…, out, window), whose leading axes broadcast with self's.
    """
    axes = len(places)
    plane = self.shape[-axes:]
    flat = torch.zeros((), dtype=torch.int64, device=self.device)
    for axis, position in enumerate(places):
        after = axes - 1 - axis
        lead = position.shape[:-2]
        shape = [*lead, *[1] * axis, position.shape[-2], *[1] * after, *[1] * axis, position.shape[-1], *[1] * after]
        flat = flat * plane[axis] + position.reshape(shape)
    outs = flat.shape[-2 * axes : -axes]
    flat = flat.flatten(-axes)
    lead = self.shape[:-axes]
    index = flat.expand(*lead, *outs, flat.shape[-1])
    values = torch.gather(self.flatten(-axes), -1, index.flatten(-axes - 1)).reshape(index.shape)
    best, which = values.max(-1)
    return best, torch.gather(index, -1, which.unsqueeze(-1)).squeeze(-1)


@decomposes(aten.adaptive_max_pool1d.default, aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def adaptive_max_pool(self: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Returns the largest element of each window, and its index in the flattened plane."""
    axes = len(output_size)
    if all(is_known(out, 1) for out in output_size):
        values, places = self.flatten(-axes).max(-1)
        shape = [*self.shape[:-axes], *[1] * axes]
        return values.reshape(shape), places.reshape(shape)
    return adaptive_max_of_windows(self, output_size)


def adaptive_max_of_windows(self: Tensor, output_size: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Returns the largest element of each window, and its index, by the same operators for all sizes.

    A window that is shorter than the longest one repeats its last element.
    """
    places_by_axis = []
    for size, out in zip(self.shape[-len(output_size) :], output_size, strict=True):
        begin, end = _bounds(size, out, self)
        longest = (size + out - 1) // at_least(out, 1) + 1
        position = begin.unsqueeze(1) + torch.arange(longest, device=self.device)
        places_by_axis.append(torch.minimum(position, (end - 1).unsqueeze(1)))
    return _max_and_indices(self, places_by_axis)


def _fractional_max_pool(
    self: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns the largest element of windows at pseudo-random positions, and its index.

    Window i begins at int((i + u) * a) - int(u * a), where u is a random sample; the last window is at the end.

    Args:
        random_samples: (N, C, axes); its last axis lists the spatial axes from the last to the first.
    """
    axes = len(kernel_size)
    places = []
    batched = self.dim() == axes + 2
    for axis, (size, kernel, out) in enumerate(zip(self.shape[-axes:], kernel_size, output_size, strict=True)):
        sample = random_samples[..., axes - 1 - axis].unsqueeze(-1)
        sample = sample if batched else sample.squeeze(0)
        window = torch.arange(out, device=self.device)
        begin = (window * 0 + size - kernel).expand(*sample.shape[:-1], out)
        if out > 1:
            alpha = float(size - kernel) / float(out - 1) if isinstance(size, int) else (size - kernel) / (out - 1)
            drawn = ((window.to(sample.dtype) + sample) * alpha).to(torch.int64) - (sample * alpha).to(torch.int64)
            begin = torch.where(window == out - 1, begin, drawn)
        places.append(begin.unsqueeze(-1) + torch.arange(kernel, device=self.device))
    return _max_and_indices(self, places)


@decomposes(aten.fractional_max_pool2d.default)
def fractional_max_pool2d(
    self: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns the fractional max pooling of a plane."""
    return _fractional_max_pool(self, kernel_size, output_size, random_samples)


@decomposes(aten.fractional_max_pool3d.default)
def fractional_max_pool3d(
    self: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns the fractional max pooling of a volume, whose samples list the axes from the first to the last."""
    return _fractional_max_pool(self, kernel_size, output_size, random_samples.flip(-1))


# ---------------------------------------------------------------- unpooling


def _unpool(self: Tensor, indices: Tensor, output_size: Sequence[int]) -> Tensor:
    """Returns zeros, with each value at its index in the flattened output."""
    axes = len(output_size)
    lead = self.shape[:-axes]
    plane = torch.zeros([*lead, math.prod(output_size)], dtype=self.dtype, device=self.device)
    filled = plane.scatter(-1, indices.flatten(-axes), self.flatten(-axes))
    return filled.reshape([*lead, *output_size])


@decomposes(aten.max_unpool2d.default)
def max_unpool2d(self: Tensor, indices: Tensor, output_size: Sequence[int]) -> Tensor:
    """Returns zeros, with each value at its index in the flattened plane."""
    return _unpool(self, indices, output_size)


@decomposes(aten.max_unpool3d.default)
def max_unpool3d(
    self: Tensor, indices: Tensor, output_size: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> Tensor:
    """Returns zeros, with each value at its index in the flattened volume."""
    return _unpool(self, indices, output_size)
