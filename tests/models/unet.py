"""U-Net (Ronneberger et al., 2015) that upsamples by interpolation, so that any image size works."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class DoubleConv(nn.Sequential):
    """Two 3x3 convolutions, each with batch norm and ReLU."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(
            nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    """Maps images (batch, 3, height, width) to a mask of logits (batch, classes, height, width)."""

    def __init__(self, width: int = 64, depth: int = 4, classes: int = 2, mode: str = "bilinear") -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.mode = mode
        self.stem = DoubleConv(3, width)
        self.pool = nn.MaxPool2d(2)
        self.down = nn.ModuleList(DoubleConv(above, below) for above, below in pairwise(widths))
        self.up = nn.ModuleList(DoubleConv(above + below, above) for below, above in pairwise(reversed(widths)))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        skips = []
        for down in self.down:
            skips.append(x)
            x = down(self.pool(x))
        for up in self.up:
            skip = skips.pop()
            x = F.interpolate(x, size=skip.shape[-2:], mode=self.mode)
            x = up(torch.cat([skip, x], dim=1))
        return self.head(x)
