"""Exports a small YOLO: a convolutional backbone, heads for boxes and classes, and non-maximum suppression."""

import torch
import torchvision
from torch import nn

import fx_onnx


class Block(nn.Sequential):
    """A convolution that halves the size, a batch norm and a SiLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.SiLU())


class Yolo(nn.Module):
    """Predicts a box and class scores for each cell of a grid. A cell has 8 x 8 pixels."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.backbone = nn.Sequential(Block(3, 16), Block(16, 32), Block(32, 64))
        self.boxes, self.classes = nn.Conv2d(64, 4, 1), nn.Conv2d(64, classes, 1)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(1, 3, height, width) to boxes (n, 4), scores (n,) and labels (n,) of the n objects that remain."""
        features = self.backbone(image)
        height, width = features.shape[-2:]
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        centers = torch.stack([columns, rows], -1).reshape(-1, 2) + 0.5
        distances = nn.functional.softplus(self.boxes(features)).flatten(2)[0].T  # to the left, top, right, bottom
        boxes = 8 * torch.cat([centers - distances[:, :2], centers + distances[:, 2:]], 1)
        scores, labels = self.classes(features).flatten(2)[0].T.sigmoid().max(1)
        kept = torchvision.ops.batched_nms(boxes, scores, labels, iou_threshold=0.5)
        return boxes[kept], scores[kept], labels[kept]


torch.manual_seed(0)
model = Yolo().eval()
program = fx_onnx.export(
    model,
    (torch.rand(1, 3, 96, 128),),
    dynamic_shapes={"image": {2: "height", 3: "width"}},
    output_names=["boxes", "scores", "labels"],
)
print(program)

image = torch.rand(1, 3, 160, 200)
boxes, scores, labels = program(image)
expected = model(image)
print(f"{len(boxes)} objects in an image of 160 x 200")
# Objects whose scores are equal but for rounding may change places, so the columns are compared in order of size.
torch.testing.assert_close(boxes.sort(0).values, expected[0].sort(0).values, rtol=1e-3, atol=1e-3)
torch.testing.assert_close(scores, expected[1], rtol=1e-3, atol=1e-5)
assert torch.equal(labels.bincount(), expected[2].bincount())
