"""torchvision's operators.

The regions are inside the image, at its edges, beyond them, or empty. The boxes include boxes without area, equal
scores, overlaps equal to the threshold, and NaN.
"""

import math

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.messages.errors import TranslationError
from tests.compare import assert_close
from tests.harness import Arg, Case, cases, check, f32, f64
from tests.one_capture import OneCapture
from tests.torchvision_cpu import torchvision

operators = torch.ops.torchvision

# image, x1, y1, x2, y2: inside, one point, over all edges, at half pixels, tiny, outside, just beyond the corner
REGIONS = (
    *(0, 0, 0, 10, 10), *(1, 2.3, 1.7, 9.1, 12.9), *(0, 5, 5, 5, 5), *(1, -3, -2, 4, 30),
    *(0, 2.5, 3.5, 6.5, 8.5), *(1, 4, 4, 4.4, 4.2), *(0, 20, 20, 30, 30), *(0, -1.2, -0.6, 0.2, 0.7),
)  # fmt: skip
MAPS = f32(2, 12, 13, 11)


def regions(dtype: torch.dtype = torch.float32) -> Arg:
    return Arg(dtype, (8, 5), values=REGIONS)


class OneResult(nn.Module):
    """Returns one result of an operator with two."""

    def __init__(self, target: object, index: int, *options: object) -> None:
        super().__init__()
        self.target, self.index, self.options = target, index, options

    def forward(self, input: Tensor, rois: Tensor) -> Tensor:
        return self.target(input, rois, *self.options)[self.index]


@cases(
    [
        *(
            Case(operators.roi_align.default, MAPS, regions(), scale, 3, 2, ratio, aligned)
            for aligned in (False, True)
            for ratio in (0, -1, 1, 2)
            for scale in (1.0, 0.3)
        ),
        Case(
            operators.roi_align.default, MAPS, regions(), 0.5, 2, 2, 2, True,
            emits=["Split", "Squeeze", "Cast", "RoiAlign"],
        ),
        Case(operators.roi_align.default, f64(2, 3, 9, 9), regions(torch.float64), 0.3, 2, 2, 2, True),
        Case(operators.roi_align.default, f32(2, 3, 9, 9), f32(0, 5), 0.5, 2, 2, 2, True),
    ]
)  # fmt: skip
def test_roi_align(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("scale", [1.0, 0.5, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_roi_pool(scale: float, dtype: torch.dtype) -> None:
    module = OneResult(operators.roi_pool.default, 0, scale, 3, 2).eval()
    maps, rois = Arg(dtype, (2, 12, 13, 11)).make(), regions(dtype).make()
    program = fx_onnx.export(module, (maps, rois), dynamic_shapes=({2: "height"}, {0: "regions"}))
    emitted = {node.op_type for node in program.model.graph}
    assert ("MaxRoiPool" in emitted) == (dtype == torch.float32)
    for inputs in ((maps, rois), (maps.flip(0)[:, :, :9], rois[:3])):
        assert_close(program(*inputs), module(*inputs))


def test_the_indices_of_roi_pool_are_refused() -> None:
    module = OneResult(operators.roi_pool.default, 1, 1.0, 3, 2).eval()
    with pytest.raises(TranslationError, match="result 1 of roi_pool"):
        fx_onnx.export(module, (MAPS.make(), regions().make()))


POSITION_SENSITIVE = [
    (operators.ps_roi_align.default, 0), (operators.ps_roi_align.default, 2), (operators.ps_roi_pool.default,),
]  # fmt: skip


@cases(
    [
        Case(target, Arg(dtype, (2, 12, 13, 11)), regions(dtype), scale, 3, 2, *ratio, dynamic=False)
        for dtype in (torch.float32, torch.float64)
        for scale in (1.0, 0.3)
        for target, *ratio in POSITION_SENSITIVE
    ]
)
def test_position_sensitive(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(("target", "ratio"), [(target, ratio) for target, *ratio in POSITION_SENSITIVE])
def test_position_sensitive_of_any_size(target: object, ratio: list[int]) -> None:
    module = OneResult(target, 0, 0.5, 3, 2, *ratio).eval()
    maps, rois = MAPS.make(), regions().make()
    dynamic = ({0: "batch", 2: "height", 3: "width"}, {0: "regions"})
    program = fx_onnx.export(module, (maps, rois), dynamic_shapes=dynamic)
    for inputs in ((maps, rois), (maps.flip(0)[:, :, :9, :10], rois[:3])):
        assert_close(program(*inputs), module(*inputs))


OPSETS = [18, 19, 22]  # decomposed, DeformConv-19, DeformConv-22


def offsets(dtype: torch.dtype, *sizes: int) -> Arg:
    return Arg(dtype, sizes, -3.0, 3.0)


@cases(
    [
        Case(
            operators.deform_conv2d.default, f32(2, 6, 9, 8), f32(4, 6, 3, 3), offsets(torch.float32, 2, 18, 7, 6),
            f32(2, 9, 7, 6), f32(4), 1, 1, 0, 0, 1, 1, 1, 1, True, opsets=OPSETS, emits=["DeformConv"], dynamic=False,
        ),
        Case(
            operators.deform_conv2d.default, f32(2, 6, 9, 8), f32(4, 3, 3, 2), offsets(torch.float32, 2, 36, 5, 10),
            f32(2, 1), f32(4), 2, 1, 1, 2, 1, 2, 2, 3, False, opsets=OPSETS, emits=["DeformConv"], dynamic=False,
        ),
        Case(
            operators.deform_conv2d.default, f64(1, 6, 9, 8), f64(6, 2, 1, 3), offsets(torch.float64, 1, 12, 9, 6),
            f64(1, 6, 9, 6), f64(6), 1, 1, 0, 0, 2, 1, 3, 2, True, opsets=OPSETS, dynamic=False,
        ),
    ]
)  # fmt: skip
def test_deformable_convolution(case: Case) -> None:
    check(case)


class Deformed(nn.Module):
    """Computes the offsets and masks by a convolution of the image, as torchvision's layer does."""

    def __init__(self) -> None:
        super().__init__()
        self.plan = nn.Conv2d(4, 27, 3, padding=1)
        self.convolution = torchvision.ops.DeformConv2d(4, 6, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        plan = self.plan(image)
        return self.convolution(image, plan[:, :18], plan[:, 18:].sigmoid())


def test_deformable_convolution_of_any_size() -> None:
    torch.manual_seed(0)
    module = Deformed().eval()
    dynamic = ({0: "batch", 2: "height", 3: "width"},)
    captured = OneCapture(module, (torch.randn(2, 4, 7, 9),), dynamic_shapes=dynamic)
    for opset in (18, 20):
        program = captured.export(opset_version=opset)
        for sizes in ((2, 4, 7, 9), (1, 4, 12, 5)):
            image = torch.randn(sizes)
            with torch.no_grad():
                assert_close(program(image), module(image))


# ---------------------------------------------------------------- nms


class Suppress(nn.Module):
    def __init__(self, iou_threshold: float) -> None:
        super().__init__()
        self.iou_threshold = iou_threshold

    def forward(self, boxes: Tensor, scores: Tensor) -> Tensor:
        return operators.nms(boxes, scores, self.iou_threshold)


NAN = math.nan
ODD = torch.tensor(
    [
        [0, 0, 10, 10], [0, 0, 10, 5], [0, 0, 10, 5], [5, 5, 5, 5], [5, 5, 5, 5], [10, 10, 0, 0], [10, 10, 0, 0],
        [NAN, 0, 5, 5], [NAN, 0, 5, 5], [0, 0, NAN, 10], [3, 9, 8, 2], [3, 9, 8, 2],
    ]
)  # fmt: skip


def boxes(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    corners = torch.rand(count, 4, generator=generator) * 20
    return torch.cat([corners[:, :2], corners[:, :2] + corners[:, 2:]], 1)


def assert_suppresses_as_torchvision(program: fx_onnx.ONNXProgram, module: nn.Module, *inputs: Tensor) -> None:
    assert_close(program(*inputs), module(*inputs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_nms(dtype: torch.dtype) -> None:
    """Tests any number of boxes, also none. Boxes with equal scores keep their order."""
    module, single = Suppress(0.3).eval(), Suppress(0.3).eval()
    example = (boxes(7, 0).to(dtype), torch.rand(7).to(dtype))
    program = fx_onnx.export(module, example, dynamic_shapes=({0: "boxes"}, {0: "boxes"}))
    for count in (0, 1, 7, 60):
        inputs = boxes(count, count).to(dtype), (torch.arange(count) * 7 % 9).to(dtype)
        wide = [each.float() for each in inputs]  # torchvision's CPU kernel admits float32 only
        assert_close(program(*inputs), single(*wide))


@pytest.mark.parametrize("iou_threshold", [0.0, 0.4999, 0.5, 1.0, 1.5])
def test_nms_of_odd_boxes(iou_threshold: float) -> None:
    """Tests boxes without area, with swapped corners, with NaN, and duplicates; overlaps at and above the threshold."""
    module = Suppress(iou_threshold).eval()
    scores = torch.arange(12.0) % 5
    program = fx_onnx.export(module, (ODD, scores), dynamic_shapes=({0: "boxes"}, {0: "boxes"}))
    assert_suppresses_as_torchvision(program, module, ODD, scores)
    assert_suppresses_as_torchvision(program, module, ODD.flip(0), scores)


@pytest.mark.parametrize("tenths", range(1, 10))
def test_nms_at_the_threshold(tenths: int) -> None:
    """Tests overlaps equal to the threshold: torchvision compares a float32 overlap with a float64 threshold."""
    module = Suppress(tenths / 10).eval()
    inputs = torch.tensor([[0.0, 0, 10, 1], [0, 0, tenths, 1], [0, 0, 10, 2]]), torch.tensor([0.9, 0.8, 0.7])
    assert_suppresses_as_torchvision(fx_onnx.export(module, inputs), module, *inputs)


def test_nms_of_odd_scores() -> None:
    module = Suppress(0.01).eval()
    inputs = boxes(6, 0), torch.tensor([0.1, NAN, 0.5, -math.inf, NAN, -0.5])
    assert_suppresses_as_torchvision(fx_onnx.export(module, inputs), module, *inputs)


def test_nms_is_one_node_and_few_others() -> None:
    program = fx_onnx.export(Suppress(0.5).eval(), (boxes(5, 0), torch.rand(5)))
    emitted = [node.op_type for node in program.model.graph]
    assert emitted.count("NonMaxSuppression") == 1
    assert len(emitted) <= 10, emitted


@pytest.mark.parametrize(("dtype", "threshold"), [(torch.float64, 0.5), (torch.float32, -0.5)])
def test_nms_in_float64_or_below_zero_is_refused(dtype: torch.dtype, threshold: float) -> None:
    with pytest.raises(TranslationError, match="NonMaxSuppression does not admit"):
        fx_onnx.export(Suppress(threshold).eval(), (boxes(5, 0).to(dtype), torch.rand(5, dtype=dtype)))
