"""Decompositions of the variants of convolution into conv1d, conv2d, conv3d and their transposes."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fx_onnx.decompositions.registry import aten, decomposes


@decomposes(aten.conv_tbc.default)
def conv_tbc(self: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Returns conv1d over (time, batch, channels), with a weight of (kernel, in, out)."""
    result = torch.conv1d(self.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return result.permute(2, 0, 1)


@decomposes(aten.conv1d.padding, aten.conv2d.padding, aten.conv3d.padding)
def conv_padding(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1,),
    padding: str = "valid",
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Tensor:
    """Returns the convolution of an explicitly padded input.

    Padding "same" adds dilation * (kernel - 1) elements along each axis; if that is odd, the end gets one more.
    """
    axes = weight.dim() - 2
    steps = list(dilation) * axes if len(dilation) == 1 else list(dilation)
    if padding == "same":
        pads = []
        for step, size in zip(reversed(steps), reversed(weight.shape[2:]), strict=True):
            total = step * (size - 1)
            pads += [total // 2, total - total // 2]
        input = torch.nn.functional.pad(input, pads)
    function = (torch.conv1d, torch.conv2d, torch.conv3d)[axes - 1]
    return function(input, weight, bias, stride, 0, steps, groups)


def _windows(weight: Tensor) -> Tensor:
    """Returns the weight (window, 1, *kernel) of the convolution that lists the elements of each window."""
    count = math.prod(weight.shape[2:])
    return torch.eye(count, dtype=weight.dtype, device=weight.device).reshape(count, 1, *weight.shape[2:])


def _with_bias(result: Tensor, bias: Tensor | None, axes: int) -> Tensor:
    """Returns a result over spatial axes, (channels, *sizes) or a batch of these, with the bias of each channel."""
    return result if bias is None else result + bias.reshape([-1] + [1] * axes)


@decomposes(aten.conv1d.default, aten.conv2d.default, aten.conv3d.default)
def conv(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Tensor:
    """Returns the convolution of an explicitly padded input, because a number of zeros may be a size.

    A number of groups may be a size, too: in StyleGAN each image has weights of its own. Then a convolution with an
    identity collects the windows of each channel, and a matrix product with the weights of each group sums them.
    """
    axes = weight.dim() - 2
    function = (torch.conv1d, torch.conv2d, torch.conv3d)[axes - 1]
    if not isinstance(groups, int):
        channels = input.reshape(-1, 1, *input.shape[-axes:])
        windows = function(channels, _windows(weight), None, stride, padding, dilation)
        of_groups = windows.reshape(*input.shape[: -axes - 1], groups, -1, math.prod(windows.shape[2:]))
        result = weight.reshape(groups, -1, math.prod(weight.shape[1:])) @ of_groups
        result = result.reshape(*input.shape[: -axes - 1], weight.shape[0], *windows.shape[2:])
        return _with_bias(result, bias, axes)
    pads = [count for pad in reversed(list(padding) * (axes // len(padding))) for count in (pad, pad)]
    return function(torch.nn.functional.pad(input, pads), weight, bias, stride, 0, dilation, groups)


@decomposes(aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input)
def conv_transpose(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    output_padding: Sequence[int] = (0,),
    groups: int = 1,
    dilation: Sequence[int] = (1,),
) -> Tensor:
    """Returns the transposed convolution, padded explicitly.

    The unpadded result is cut by ``padding`` at both ends, and lengthened by ``output_padding`` at the end. If the
    number of groups is a size, a matrix product gives the windows, as in ``conv``, and an identity places them.
    """
    axes = weight.dim() - 2
    transposed = (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)[axes - 1]
    if not isinstance(groups, int):
        of_groups = input.reshape(*input.shape[: -axes - 1], groups, -1, math.prod(input.shape[-axes:]))
        columns = weight.reshape(groups, -1, math.prod(weight.shape[1:])).mT @ of_groups
        windows = columns.reshape(-1, math.prod(weight.shape[2:]), *input.shape[-axes:])
        result = transposed(windows, _windows(weight), None, stride, padding, output_padding, 1, dilation)
        result = result.reshape(*input.shape[: -axes - 1], groups * weight.shape[1], *result.shape[2:])
        return _with_bias(result, bias, axes)
    result = transposed(input, weight, None, stride, 0, 0, groups, dilation)
    cuts, extras = (list(counts) * axes if len(counts) == 1 else list(counts) for counts in (padding, output_padding))
    pads = []
    for cut, extra in zip(reversed(cuts), reversed(extras), strict=True):
        pads += [-cut, extra - cut]
    result = torch.nn.functional.pad(result, pads)
    return _with_bias(result, bias, axes)


@decomposes(aten.convolution.default)
def convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """Returns the convolution, plain or transposed, over as many axes as the weight has beyond two."""
    if transposed:
        return conv_transpose(input, weight, bias, stride, padding, output_padding, groups, dilation)
    function = (torch.conv1d, torch.conv2d, torch.conv3d)[weight.dim() - 3]
    return function(input, weight, bias, stride, padding, dilation, groups)


@decomposes(aten._convolution.default, aten._convolution.deprecated)
def _convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    benchmark: bool,
    deterministic: bool,
    cudnn_enabled: bool,
    allow_tf32: bool = True,
) -> Tensor:
    """Returns ``convolution``; the flags choose an algorithm of torch and do not change the result."""
    return convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


@decomposes(aten._slow_conv2d_forward.default)
def slow_conv2d(
    self: Tensor,
    weight: Tensor,
    kernel_size: Sequence[int],
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
) -> Tensor:
    """Returns conv2d; ``kernel_size`` repeats the weight's shape."""
    return torch.conv2d(self, weight, bias, stride, padding)
