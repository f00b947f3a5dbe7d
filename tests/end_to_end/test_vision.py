"""A sample of torchvision's models without repeated layers, and tiny detectors; `benchmarks/vision.py` runs all."""

from __future__ import annotations

import copy
import warnings
from collections import OrderedDict
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from tests.compare import assert_close
from tests.models.vision import VISION, VisionModel, picture, remove_repeated_layers
from tests.torchvision_cpu import torchvision

detection = torchvision.models.detection
SAMPLE = {"shufflenet_v2_x0_5", "lraspp_mobilenet_v3_large", "vit_b_32"}


@pytest.mark.parametrize("model", [each for each in VISION if each.name in SAMPLE], ids=lambda each: each.name)
def test_model(model: VisionModel) -> None:
    """Exports the model with inputs of one size and compares it with eager at two sizes, or for two images."""
    module = replace(model, is_shallow=True).build()
    examples = model.examples(module)
    shapes = model.dynamic_shapes(examples[0])
    program = fx_onnx.export(module, (), kwargs=copy.deepcopy(examples[0]), dynamic_shapes=shapes)
    for inputs in examples:
        with torch.no_grad():
            assert_close(program.call_structured(**copy.deepcopy(inputs)), module(**copy.deepcopy(inputs)))


def test_table() -> None:
    """Tests that names are unique, and that the sample is in the table."""
    names = [model.name for model in VISION]
    assert len(names) == len(set(names))
    assert set(names) >= SAMPLE


class TinyPyramid(nn.Module):
    """Feature maps of two sizes, with 8 channels."""

    out_channels = 8

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 5, stride=4, padding=2), nn.Conv2d(8, 8, 3, stride=2, padding=1)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        fine = self.first(images)
        return OrderedDict([("0", fine), ("1", self.second(fine.relu()))])


def tiny_detector(kind: str) -> nn.Module:
    """Returns a detector with widely spread scores; it finds objects in every image."""
    torch.manual_seed(0)
    anchors = detection.rpn.AnchorGenerator(((12,), (24,)), ((0.5, 1.0, 2.0),) * 2)
    pooler, fine_pooler = (torchvision.ops.MultiScaleRoIAlign(["0", "1"], size, 2) for size in (3, 5))
    sizes = {"min_size": 64, "max_size": 96}
    parts = {"rpn_anchor_generator": anchors, "box_roi_pool": pooler, "rpn_pre_nms_top_n_test": 40}
    limits = {"box_detections_per_img": 6, "rpn_post_nms_top_n_test": 20, "box_score_thresh": 0.1}
    if kind == "mask":
        module = detection.MaskRCNN(TinyPyramid(), 3, mask_roi_pool=fine_pooler, **sizes, **parts, **limits)
    elif kind == "keypoint":
        head = detection.keypoint_rcnn.KeypointRCNNHeads(8, (16,))
        points = {"keypoint_head": head, "keypoint_predictor": detection.keypoint_rcnn.KeypointRCNNPredictor(16, 4)}
        module = detection.KeypointRCNN(
            TinyPyramid(), 2, keypoint_roi_pool=fine_pooler, **points, **sizes, **parts, **limits
        )
    else:
        module = detection.RetinaNet(
            TinyPyramid(), 3, anchor_generator=anchors, detections_per_img=6, score_thresh=0.3, **sizes
        )
    remove_repeated_layers(module)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.dim() > 1:
                spread = 4.0 if "cls" in name or "kps" in name or "mask_fcn" in name else 1.0
                parameter.normal_(0, spread * parameter[0].numel() ** -0.5)
            elif "cls" in name:
                parameter.zero_()
    return module.eval()


@pytest.mark.parametrize(("kind", "count", "dynamic"), [("mask", 2, False), ("keypoint", 1, True), ("retina", 2, True)])
def test_detector(kind: str, count: int, dynamic: bool) -> None:
    """Tests one image, or two of different sizes. If the sizes are dynamic, it tests two more groups of sizes.

    Each image has a different number of objects.
    """
    module = tiny_detector(kind)
    sizes = [[(50, 60), (64, 48)], [(64, 90), (30, 100)], [(120, 40), (80, 80)]]

    def images(seed: int) -> list[Tensor]:
        chosen = sizes[seed if dynamic else 0][:count]
        return [picture(1, 3, *size, seed=10 * seed + i)[0] for i, size in enumerate(chosen)]

    shapes = ([{1: f"height{i}", 2: f"width{i}"} for i in range(count)],)
    with warnings.catch_warnings():
        warnings.simplefilter("error", fx_onnx.OnnxExporterWarning)  # a size that becomes static gives a warning
        program = fx_onnx.export(module, (images(0),), dynamic_shapes=shapes if dynamic else None)
    found = []
    for seed in range(len(sizes)):
        with torch.no_grad():
            want = module(images(seed))
        assert_close(program.call_structured(images(seed)), want)
        found.append([len(each["boxes"]) for each in want])
    assert max(map(max, found)) > 0
