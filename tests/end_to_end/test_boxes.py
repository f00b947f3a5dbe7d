"""torchvision's operations on boxes, for any number of boxes, also one or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

import fx_onnx
from tests.compare import assert_close
from tests.modules import FunctionModule
from tests.torchvision_cpu import torchvision

operations = torchvision.ops
PAIRWISE = ("box_iou", "generalized_box_iou", "distance_box_iou", "complete_box_iou")
ROTATED = (("xywhr", "xyxyxyxy"), ("cxcywhr", "xywhr"), ("xywhr", "cxcywhr"))


def boxes(count: int, seed: int = 0) -> Tensor:
    """Returns corners (N, 4) in an image of 60 by 60; every third box is empty."""
    corners = torch.rand(count, 4, generator=torch.Generator().manual_seed(seed)) * 30
    corners[::3, 2] = 0
    return torch.cat([corners[:, :2], corners[:, :2] + corners[:, 2:]], 1)


def masks(count: int, height: int, width: int) -> Tensor:
    """Returns random masks, each with at least one pixel."""
    drawn = torch.rand(count, height, width, generator=torch.Generator().manual_seed(count)) > 0.8
    drawn[:, height // 2, width // 2] = True
    return drawn


def check(function: Callable[..., object], dims: Sequence[dict[int, str]], *examples: tuple[Tensor, ...]) -> None:
    """Exports the function with the first example and compares it with eager for all examples."""
    module = FunctionModule(function).eval()
    program = fx_onnx.export(module, examples[0], dynamic_shapes=(tuple(dims),))
    for example in examples:
        assert_close(program.call_structured(*example), module(*example))


def test_overlaps() -> None:
    """Tests every measure of overlap for all pairs of boxes."""

    def overlaps(boxes1: Tensor, boxes2: Tensor) -> list[Tensor]:
        measures = [getattr(operations, name)(boxes1, boxes2) for name in PAIRWISE]
        return [*measures, operations.box_iou(boxes1, boxes2, fmt="cxcywh")]

    sizes = ((7, 5), (11, 8), (1, 3), (4, 1), (0, 3), (2, 0))
    check(overlaps, ({0: "n"}, {0: "m"}), *((boxes(n), boxes(m, seed=1)) for n, m in sizes))


@pytest.mark.parametrize("name", ["generalized_box_iou_loss", "distance_box_iou_loss", "complete_box_iou_loss"])
def test_losses(name: str) -> None:
    def loss(boxes1: Tensor, boxes2: Tensor) -> tuple[Tensor, Tensor]:
        function = getattr(operations, name)
        return function(boxes1, boxes2), function(boxes1, boxes2, reduction="sum")

    check(loss, ({0: "n"}, {0: "n"}), *((boxes(n), boxes(n, seed=1)) for n in (5, 9, 1, 0)))


def test_functions_of_each_box() -> None:
    """Tests functions of single boxes: areas, formats, clipping to an image of any size, removal of small boxes."""

    def measured(boxes: Tensor, image: Tensor) -> tuple[Tensor, ...]:
        formats = [operations.box_convert(boxes, "xyxy", other) for other in ("xywh", "cxcywh")]
        back = [
            operations.box_convert(each, other, "xyxy") for each, other in zip(formats, ("xywh", "cxcywh"), strict=True)
        ]
        clipped = operations.clip_boxes_to_image(boxes, image.shape)
        large = operations.remove_small_boxes(clipped, 8.0)
        return operations.box_area(boxes), *formats, *back, clipped, large, boxes[large]

    dims = ({0: "n"}, {0: "height", 1: "width"})
    sizes = ((7, 30, 40), (11, 40, 25), (1, 60, 60), (0, 30, 30))
    check(measured, dims, *((boxes(n), torch.zeros(height, width)) for n, height, width in sizes))


def test_rotated_boxes() -> None:
    def converted(boxes: Tensor) -> list[Tensor]:
        found = [operations.box_convert(boxes, *formats) for formats in ROTATED]
        return [*found, operations.box_convert(found[0], "xyxyxyxy", "xywhr")]

    turned = [torch.cat([boxes(n), boxes(n, seed=1)[:, :1] * 3], 1) for n in (6, 9, 1, 0)]
    check(converted, ({0: "n"},), *((each,) for each in turned))


def test_masks_to_boxes() -> None:
    """Tests the smallest box around each mask."""
    sizes = ((3, 9, 8), (5, 12, 7), (1, 4, 4))
    check(operations.masks_to_boxes, ({0: "n", 1: "height", 2: "width"},), *((masks(*each),) for each in sizes))
