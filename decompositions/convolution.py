"""Convolutions under other names, in terms of the plain ones."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fx_onnx.decompositions.registry import decomposes

aten = torch.ops.aten


@decomposes(aten.conv_tbc.default)
def conv_tbc(self: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """conv1d over (time, batch, channels), with a weight of (kernel, in, out)."""
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
    """conv of an explicitly padded input: "same" pads by dilation * (kernel - 1), an odd one more at the end."""
    axes = weight.dim() - 2
    steps = list(dilation) * axes if len(dilation) == 1 else list(dilation)
    if padding == "same":
        pads = []
        for step, size in zip(reversed(steps), reversed(weight.shape[2:]), strict=True):
            total = step * (size - 1)
            pads += [total // 2, total - total // 2]
        input = torch.nn.functional.pad(input, pads)
    conv = (torch.conv1d, torch.conv2d, torch.conv3d)[axes - 1]
    return conv(input, weight, bias, stride, 0, steps, groups)


@decomposes(aten._slow_conv2d_forward.default)
def slow_conv2d(
    self: Tensor,
    weight: Tensor,
    kernel_size: Sequence[int],
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
) -> Tensor:
    """conv2d; the kernel's size is the weight's."""
    return torch.conv2d(self, weight, bias, stride, padding)
