"""Each patch computes the same as torchvision's function for any number of boxes, and is removed afterwards."""

import copy

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.capture.patches.patching import apply_patches
from fx_onnx.libraries.torchvision import (
    PATCHES,
    _batch_images,
    _decode,
    _paste_masks_in_image,
    _resize_image_and_masks,
    _setup_scales,
    _topk_min,
)
from tests.compare import assert_close
from tests.torchvision_cpu import torchvision

batched_nms = torchvision.ops.batched_nms
poolers = torchvision.ops.poolers
roi_heads, transform = torchvision.models.detection.roi_heads, torchvision.models.detection.transform
BoxCoder = torchvision.models.detection._utils.BoxCoder


def boxes(count: int, seed: int = 0, extent: float = 40.0) -> Tensor:
    """Returns random boxes, many of which overlap."""
    generator = torch.Generator().manual_seed(seed)
    corners = torch.rand(count, 4, generator=generator) * extent
    return torch.cat([corners[:, :2], corners[:, :2] + corners[:, 2:]], 1)


class NonMaxSuppression(nn.Module):
    """Selects boxes by score and suppresses overlapping boxes of the same class, as detectors do."""

    def forward(self, boxes: Tensor, scores: Tensor, labels: Tensor) -> Tensor:
        good = torch.where(scores > 0.1)[0]
        return good[batched_nms(boxes[good], scores[good], labels[good], 0.4)]


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_batched_nms(dtype: torch.dtype) -> None:
    """Tests no boxes, few boxes, and more than 1000, for which torchvision has another branch; negative classes too."""
    module = NonMaxSuppression().eval()
    example = (boxes(30), torch.rand(30), torch.randint(0, 4, (30,)).to(dtype))
    count = {0: "boxes"}
    program = fx_onnx.export(module, example, dynamic_shapes=(count, count, count))
    assert "NonMaxSuppression" in {node.op_type for node in program.model.graph}
    for number, seed in ((30, 0), (300, 1), (3000, 2)):
        generator = torch.Generator().manual_seed(seed)
        scores = torch.rand(number, generator=generator)
        labels = (torch.randint(0, 5, (number,), generator=generator) * 7 - 9).to(dtype)
        inputs = (boxes(number, seed, 400.0), scores, labels)
        assert_close(program(*inputs), module(*inputs))
        tied = (inputs[0], (scores * 8).round() / 8, labels)
        got, want = program(*tied)[0], module(*tied)
        if number > 1000:  # torchvision's branch for many boxes does not keep the order of equal scores
            got, want = got.sort()[0], want.sort()[0]
        assert_close(got, want)
        assert program(inputs[0], scores * 0, labels)[0].shape == (0,)


class Pasted(nn.Module):
    def forward(self, masks: Tensor, boxes: Tensor, image: Tensor) -> Tensor:
        kept = torch.where(boxes[:, 0] >= 0)[0]
        height, width = image.shape
        return roi_heads.paste_masks_in_image(masks[kept], boxes[kept], (height, width))


BOXES = torch.tensor(
    [[0, 0, 10, 12.5], [3, 4, 9, 9], [5, 5, 5, 5], [-4, -3, 50, 60], [2.2, 7.9, 30, 8], [35, 20, 60, 29.5]]
)


def test_paste_masks_in_image() -> None:
    """Tests boxes that cross the edges, that have one pixel, and that are larger than the image."""
    masks = torch.rand(6, 1, 7, 7, generator=torch.Generator().manual_seed(0))
    for size in ((30, 40), (64, 45)):
        want = roi_heads.paste_masks_in_image(masks, BOXES, size)
        assert_close(_paste_masks_in_image(masks, BOXES, size), want)
    assert _paste_masks_in_image(masks[:0], BOXES[:0], (5, 6)).shape == (0, 1, 5, 6)


def test_an_exported_model_pastes_masks() -> None:
    module, masks = Pasted().eval(), torch.rand(6, 1, 7, 7)
    dynamic = ({0: "boxes"}, {0: "boxes"}, {0: "height", 1: "width"})
    program = fx_onnx.export(module, (masks, BOXES, torch.zeros(30, 40)), dynamic_shapes=dynamic)
    for inputs in ((masks, BOXES, torch.zeros(30, 40)), (masks[1:5], BOXES[1:5], torch.zeros(25, 33))):
        assert_close(program(*inputs), module(*inputs))
    assert program(masks, -BOXES.abs() - 1, torch.zeros(9, 8))[0].shape == (0, 1, 9, 8)


class Keypoints(nn.Module):
    def forward(self, maps: Tensor, boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        kept = torch.where(scores > 0.5)[0]
        return roi_heads.heatmaps_to_keypoints(maps[kept], boxes[kept])


def test_keypoints() -> None:
    module, maps = Keypoints().eval(), torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    every, none = torch.ones(6), torch.zeros(6)
    program = fx_onnx.export(module, (maps, BOXES, every), dynamic_shapes=({0: "boxes"}, {0: "boxes"}, {0: "boxes"}))
    some = torch.tensor([1.0, 0, 1, 0, 0, 1])
    for scores in (every, some, none):
        assert_close(program(maps, BOXES, scores), module(maps, BOXES, scores))


def test_decode() -> None:
    coder = BoxCoder((10.0, 10.0, 5.0, 5.0))
    codes = torch.randn(6, 12, generator=torch.Generator().manual_seed(0))
    assert_close(_decode(coder, codes, [BOXES[:2], BOXES[2:]]), coder.decode(codes, [BOXES[:2], BOXES[2:]]))
    assert _decode(coder, codes[:0], [BOXES[:0]]).shape == (0, 3, 4)


@pytest.mark.parametrize("size", [(50, 60), (64, 48), (30, 100), (120, 40)])
def test_resize_and_batch_images(size: tuple[int, int]) -> None:
    image, target = torch.rand(3, *size), {"masks": torch.ones(2, *size, dtype=torch.uint8)}
    for options in ((64, 96, None, None), (64, 96, None, (40, 30)), (64, 96, target, None)):
        want = transform._resize_image_and_masks(image, *(copy.copy(each) for each in options))
        assert_close(_resize_image_and_masks(image, *(copy.copy(each) for each in options)), want)
    images, whole = [image, torch.rand(3, 33, 64)], transform.GeneralizedRCNNTransform(64, 96, [0.5] * 3, [0.2] * 3)
    for batch in (images, images[:1]):
        assert_close(_batch_images(whole, batch), whole.batch_images(batch))


def test_setup_scales() -> None:
    maps = [torch.rand(1, 2, size, size) for size in (24, 12, 6)]
    for shapes in ([(90, 60)], [(64, 48), (96, 90)]):
        (want, levels), (got, mapper) = (find(maps, shapes, 224, 4) for find in (poolers._setup_scales, _setup_scales))
        assert (got, vars(mapper)) == (want, vars(levels))
        assert got == [0.25, 0.125, 0.0625]


def test_topk_min() -> None:
    assert [_topk_min(torch.zeros(2, 5), count, 1) for count in (3, 9)] == [3, 5]


def test_torchvision_is_restored() -> None:
    before = batched_nms, roi_heads.paste_masks_in_image, BoxCoder.decode
    with apply_patches(PATCHES):
        assert globals()["batched_nms"] is not before[0]
        assert roi_heads.paste_masks_in_image is not before[1]
        assert BoxCoder.decode is not before[2]
    assert (batched_nms, roi_heads.paste_masks_in_image, BoxCoder.decode) == before


def test_a_captured_program_runs_in_torch() -> None:
    module, example = NonMaxSuppression().eval(), (boxes(30), torch.rand(30), torch.randint(0, 4, (30,)))
    captured = fx_onnx.export(module, example).exported_program
    assert_close(captured.module()(*example), module(*example))
