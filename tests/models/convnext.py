"""ConvNeXt (Liu et al., 2022). The defaults are ConvNeXt-T."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of (batch, channels, height, width)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNeXtBlock(nn.Module):
    """A depthwise 7x7 convolution, a norm and a perceptron over the last axis, scaled and added to the input."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.scale = nn.Parameter(torch.full((dim,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        out = self.depthwise(x).permute(0, 2, 3, 1)
        out = self.scale * self.mlp(self.norm(out))
        return x + out.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """Maps images (batch, 3, height, width) to logits (batch, classes)."""

    def __init__(
        self, depths: Sequence[int] = (3, 3, 9, 3), dims: Sequence[int] = (96, 192, 384, 768), classes: int = 1000
    ) -> None:
        super().__init__()
        self.stages = nn.Sequential(nn.Conv2d(3, dims[0], 4, stride=4), ChannelNorm(dims[0], eps=1e-6))
        for stage, (depth, dim) in enumerate(zip(depths, dims, strict=True)):
            if stage > 0:
                before = dims[stage - 1]
                self.stages.extend([ChannelNorm(before, eps=1e-6), nn.Conv2d(before, dim, 2, stride=2)])
            self.stages.extend(ConvNeXtBlock(dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dims[-1], eps=1e-6)
        self.head = nn.Linear(dims[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.norm(self.stages(images).mean(dim=(-2, -1))))
