"""Inverted residuals with squeeze and excitation: MobileNetV3 (Howard, 2019) and EfficientNet (Tan and Le, 2019)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor, nn


class Row(NamedTuple):
    """One inverted residual block."""

    kernel: int
    expansion: int
    channels: int
    stride: int


class SqueezeExcite(nn.Module):
    """Scales each channel by a gate computed from the mean over the image."""

    def __init__(self, channels: int, squeezed: int, gate: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.relu = nn.ReLU()
        self.expand = nn.Conv2d(squeezed, channels, 1)
        self.gate = gate()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.expand(self.relu(self.reduce(self.pool(x)))))


def conv_bn(in_channels: int, out_channels: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Returns a convolution that keeps the image size, divided by its stride, and a batch norm."""
    return [
        nn.Conv2d(in_channels, out_channels, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out_channels),
    ]


class InvertedResidual(nn.Module):
    """Expansion, depthwise convolution, squeeze and excitation, projection; a shortcut if the shapes allow it."""

    def __init__(
        self, in_channels: int, row: Row, activation: Callable[[], nn.Module], gate: Callable[[], nn.Module]
    ) -> None:
        super().__init__()
        expanded = in_channels * row.expansion
        self.shortcut = row.stride == 1 and in_channels == row.channels
        self.block = nn.Sequential(
            *conv_bn(in_channels, expanded, 1),
            activation(),
            *conv_bn(expanded, expanded, row.kernel, row.stride, groups=expanded),
            activation(),
            SqueezeExcite(expanded, max(1, expanded // 4), gate),
            *conv_bn(expanded, row.channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(x) if self.shortcut else self.block(x)


class InvertedResidualNet(nn.Module):
    """Maps images (batch, 3, height, width) to logits (batch, classes): a stem, the rows, a pooled head."""

    def __init__(
        self,
        rows: Sequence[Row],
        activation: Callable[[], nn.Module],
        gate: Callable[[], nn.Module],
        stem: int = 16,
        head: int = 64,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        channels = [stem, *(row.channels for row in rows)]
        self.stem = nn.Sequential(*conv_bn(3, stem, 3, stride=2), activation())
        self.blocks = nn.Sequential(
            *(InvertedResidual(before, row, activation, gate) for before, row in zip(channels[:-1], rows, strict=True))
        )
        self.head = nn.Sequential(*conv_bn(channels[-1], head, 1), activation(), nn.AdaptiveAvgPool2d(1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(head, classes))

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.head(self.blocks(self.stem(images))).flatten(1))


def mobilenet_v3(rows: Sequence[Row], classes: int = 1000) -> InvertedResidualNet:
    """Returns a network with MobileNetV3's activations: hardswish, and hardsigmoid gates."""
    return InvertedResidualNet(rows, nn.Hardswish, nn.Hardsigmoid, classes=classes)


def efficientnet(rows: Sequence[Row], classes: int = 1000) -> InvertedResidualNet:
    """Returns a network with EfficientNet's activations: SiLU, and sigmoid gates."""
    return InvertedResidualNet(rows, nn.SiLU, nn.Sigmoid, classes=classes)
