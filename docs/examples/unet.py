"""Exports a U-Net for images of any height and width."""

import torch
from torch import nn

import fx_onnx


def convolutions(inputs: int, outputs: int) -> nn.Module:
    """Two convolutions, each with a batch norm and a ReLU."""
    layers = [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


class UNet(nn.Module):
    """Segments an image: an encoder, a decoder, and connections between layers of equal size."""

    def __init__(self, width: int = 16, depth: int = 3, classes: int = 4) -> None:
        super().__init__()
        sizes = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(convolutions(a, b) for a, b in zip([3, *sizes], sizes, strict=False))
        self.up = nn.ModuleList(convolutions(a + b, b) for a, b in zip(sizes[:0:-1], sizes[-2::-1], strict=True))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, 3, height, width) to (batch, classes, height, width)."""
        skipped = []
        for level, block in enumerate(self.down):
            x = block(x if level == 0 else nn.functional.max_pool2d(x, 2))
            skipped.append(x)
        skipped.pop()
        for block in self.up:
            same_size = skipped.pop()
            x = nn.functional.interpolate(x, size=same_size.shape[-2:], mode="bilinear", align_corners=False)
            x = block(torch.cat([x, same_size], 1))
        return self.head(x)


model = UNet().eval()
program = fx_onnx.export(
    model,
    (torch.randn(2, 3, 64, 96),),
    dynamic_shapes={"x": {0: "batch", 2: "height", 3: "width"}},
    output_names=["scores"],
)
print(program)

for height, width in [(48, 48), (101, 67)]:  # also sizes that 2 does not divide
    image = torch.randn(1, 3, height, width)
    (scores,) = program(image)
    torch.testing.assert_close(scores, model(image), rtol=1e-3, atol=1e-4)
    print(f"{height} x {width}: right")
