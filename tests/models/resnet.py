"""ResNet (He et al., 2015) with bottleneck blocks. The defaults are ResNet-50."""

from collections.abc import Sequence

from torch import Tensor, nn


class Bottleneck(nn.Module):
    """Convolutions of 1x1, 3x3 and 1x1 with a shortcut; the last one has four times the channels."""

    expansion = 4

    def __init__(self, in_channels: int, channels: int, stride: int = 1) -> None:
        super().__init__()
        out_channels = channels * self.expansion
        self.conv1 = nn.Conv2d(in_channels, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or in_channels != out_channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False), nn.BatchNorm2d(out_channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        out += x if self.downsample is None else self.downsample(x)
        return self.relu(out)


class ResNet(nn.Module):
    """Maps images (batch, 3, height, width) to logits (batch, classes)."""

    def __init__(self, layers: Sequence[int] = (3, 4, 6, 3), width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        self.stages = nn.Sequential()
        in_channels = width
        for stage, blocks in enumerate(layers):
            channels = width * 2**stage
            for block in range(blocks):
                stride = 2 if block == 0 and stage > 0 else 1
                self.stages.append(Bottleneck(in_channels, channels, stride))
                in_channels = channels * Bottleneck.expansion
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(in_channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.pool(self.stages(self.stem(images))).flatten(1))
