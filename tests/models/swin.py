"""Swin Transformer (Liu et al., 2021). The defaults are Swin-T."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def to_windows(x: Tensor, window: int) -> Tensor:
    """Reshapes (batch, height, width, dim) to (batch * windows, window * window, dim)."""
    batch, height, width, dim = x.shape
    x = x.view(batch, height // window, window, width // window, window, dim)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, window * window, dim)


def from_windows(windows: Tensor, window: int, size: int) -> Tensor:
    """Reshapes (batch * windows, window * window, dim) back to (batch, size, size, dim)."""
    side = size // window
    x = windows.view(-1, side, side, window, window, windows.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, size, size, windows.shape[-1])


def shift_mask(size: int, window: int, shift: int) -> Tensor:
    """Returns (windows, window^2, window^2): -100 between pixels that share a window only by the cyclic shift."""
    region = torch.zeros(1, size, size, 1)
    parts = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
    for row, rows in enumerate(parts):
        for column, columns in enumerate(parts):
            region[:, rows, columns] = 3 * row + column
    regions = to_windows(region, window).squeeze(-1)
    return torch.where(regions[:, None, :] == regions[:, :, None], 0.0, -100.0)


def relative_positions(window: int) -> Tensor:
    """Returns (window^2, window^2): for each pair of pixels, the row of the bias table for their offset."""
    axis = torch.arange(window)
    pixels = torch.stack(torch.meshgrid(axis, axis, indexing="ij")).flatten(1)
    offsets = pixels[:, :, None] - pixels[:, None, :] + window - 1
    return offsets[0] * (2 * window - 1) + offsets[1]


class WindowAttention(nn.Module):
    """Attention inside each window of (batch * windows, window^2, dim), with a bias for each relative position."""

    position_index: Tensor

    def __init__(self, dim: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.position_bias = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) * 0.02)
        self.register_buffer("position_index", relative_positions(window))

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        count, tokens, dim = x.shape
        qkv = self.qkv(x).reshape(count, tokens, 3, self.heads, dim // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        scores = query * self.scale @ key.transpose(-2, -1)
        bias = self.position_bias[self.position_index.view(-1)].view(tokens, tokens, self.heads)
        scores = scores + bias.permute(2, 0, 1).unsqueeze(0)
        if mask is not None:
            windows = mask.shape[0]
            scores = scores.view(-1, windows, self.heads, tokens, tokens) + mask[None, :, None]
            scores = scores.view(-1, self.heads, tokens, tokens)
        attended = scores.softmax(-1) @ value
        return self.proj(attended.transpose(1, 2).reshape(count, tokens, dim))


class SwinBlock(nn.Module):
    """Window attention, shifted by half a window in every second block, and a perceptron."""

    mask: Tensor | None

    def __init__(self, dim: int, heads: int, size: int, window: int, shift: int) -> None:
        super().__init__()
        self.size, self.window, self.shift = size, window, shift
        self.norm1 = nn.LayerNorm(dim)
        self.attention = WindowAttention(dim, heads, window)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.register_buffer("mask", shift_mask(size, window, shift) if shift else None, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        shifted = self.norm1(x)
        if self.shift:
            shifted = torch.roll(shifted, (-self.shift, -self.shift), dims=(1, 2))
        windows = self.attention(to_windows(shifted, self.window), self.mask)
        shifted = from_windows(windows, self.window, self.size)
        if self.shift:
            shifted = torch.roll(shifted, (self.shift, self.shift), dims=(1, 2))
        x = x + shifted
        return x + self.mlp(self.norm2(x))


class PatchMerging(nn.Module):
    """Merges each 2 x 2 patches into one of twice the dim, which halves height and width."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        corners = [x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2]]
        return self.reduction(self.norm(torch.cat(corners, dim=-1)))


class Swin(nn.Module):
    """Maps images (batch, 3, image, image) to logits (batch, classes)."""

    def __init__(
        self,
        image: int = 224,
        patch: int = 4,
        window: int = 7,
        dim: int = 96,
        depths: Sequence[int] = (2, 2, 6, 2),
        heads: Sequence[int] = (3, 6, 12, 24),
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, dim, patch, stride=patch)
        self.norm0 = nn.LayerNorm(dim)
        self.stages = nn.Sequential()
        size = image // patch
        for stage, (depth, stage_heads) in enumerate(zip(depths, heads, strict=True)):
            if stage > 0:
                self.stages.append(PatchMerging(dim))
                dim, size = 2 * dim, size // 2
            for block in range(depth):
                shift = window // 2 if block % 2 and size > window else 0
                self.stages.append(SwinBlock(dim, stage_heads, size, window, shift))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.norm0(self.patches(images).permute(0, 2, 3, 1))
        return self.head(self.norm(self.stages(x)).mean(dim=(1, 2)))
