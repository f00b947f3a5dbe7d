"""Exports a detection model of torchvision for images of any size, with non-maximum suppression in the model."""

import torch
import torchvision

import fx_onnx

torch.manual_seed(0)
model = torchvision.models.detection.ssdlite320_mobilenet_v3_large(
    weights=None, weights_backbone=None, num_classes=5, score_thresh=0.1, detections_per_img=20
).eval()


class Detector(torch.nn.Module):
    """Takes one image, and returns boxes, scores and labels; the model takes a list and returns a list of dicts."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(3, height, width) to (n, 4), (n,), (n,)."""
        (found,) = self.model([image])
        return found["boxes"], found["scores"], found["labels"]


detector = Detector(model).eval()
program = fx_onnx.export(
    detector,
    (torch.rand(3, 240, 320),),
    dynamic_shapes={"image": {1: "height", 2: "width"}},
    output_names=["boxes", "scores", "labels"],
)
print(program)

image = torch.rand(3, 200, 301)
boxes, scores, labels = program(image)
with torch.no_grad():
    expected = detector(image)
print(f"{len(boxes)} boxes, the best has score {scores[0]:.3f}")
torch.testing.assert_close(scores, expected[1], rtol=1e-3, atol=1e-4)
assert boxes.shape == expected[0].shape
assert labels.shape == expected[2].shape
# Random weights give many boxes the same score, so their order is not compared.
