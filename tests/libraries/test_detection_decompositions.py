"""Decompositions of torchvision's operators against torchvision."""

import pytest
import torch

import fx_onnx.libraries.detection_decompositions  # noqa: F401  registers them
import tests.torchvision_cpu  # noqa: F401  declares the operators
from tests.decompositions.harness import assert_matches_torch, randn

operators = torch.ops.torchvision

# image, x1, y1, x2, y2: inside, a single point, beyond all edges, with swapped corners, tiny, outside
REGIONS = torch.tensor(
    [
        [0, 0, 0, 10, 10], [1, 2.3, 1.7, 9.1, 12.9], [0, 5, 5, 5, 5], [1, -3, -2, 4, 30],
        [0, 10.5, 2.5, 3.5, 8.5], [1, 4, 4, 4.4, 4.2], [0, 20, 20, 30, 30],
    ]
)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 0.5, 0.3])
def test_regions(dtype: torch.dtype, scale: float) -> None:
    maps, rois = randn(2, 12, 13, 11, dtype=dtype), REGIONS.to(dtype)
    assert_matches_torch(operators.roi_pool.default, maps, rois, scale, 3, 2)
    assert_matches_torch(operators.ps_roi_pool.default, maps, rois, scale, 3, 2)
    assert_matches_torch(operators.ps_roi_align.default, maps, rois, scale, 3, 2, 2)
    assert_matches_torch(operators.ps_roi_align.default, maps, rois[[0, 1, 2, 3, 5, 6]], scale, 3, 2, 0)


def test_roi_pool_takes_the_first_of_equal_values() -> None:
    assert_matches_torch(operators.roi_pool.default, torch.ones(1, 2, 6, 7), REGIONS[:1], 0.5, 2, 3)


def test_no_regions() -> None:
    for name, *ratio in (("roi_pool",), ("ps_roi_pool",), ("ps_roi_align", 2)):
        assert_matches_torch(getattr(operators, name).default, randn(2, 12, 5, 5), torch.zeros(0, 5), 1.0, 3, 2, *ratio)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("channels", "outputs", "kernel", "stride", "padding", "dilation", "groups", "offset_groups", "use_mask"),
    [
        (6, 4, (3, 3), (1, 1), (0, 0), (1, 1), 1, 1, True),
        (6, 4, (3, 2), (2, 1), (1, 2), (1, 2), 2, 3, False),
        (6, 6, (1, 3), (1, 1), (1, 0), (2, 1), 3, 2, True),
    ],
)
def test_deformable_convolution(
    dtype: torch.dtype, channels: int, outputs: int, kernel: tuple[int, int], stride: tuple[int, int],
    padding: tuple[int, int], dilation: tuple[int, int], groups: int, offset_groups: int, use_mask: bool,
) -> None:  # fmt: skip
    image = randn(2, channels, 9, 8, dtype=dtype)
    weight = randn(outputs, channels // groups, *kernel, dtype=dtype, seed=1)
    rows, columns = (
        (size + 2 * pad - step * (taps - 1) - 1) // skip + 1
        for size, pad, step, taps, skip in zip((9, 8), padding, dilation, kernel, stride, strict=True)
    )
    taps = offset_groups * kernel[0] * kernel[1]
    offset = 2 * randn(2, 2 * taps, rows, columns, dtype=dtype, seed=2)
    mask = randn(2, taps, rows, columns, dtype=dtype, seed=3)
    bias = randn(outputs, dtype=dtype, seed=4)
    options = (*stride, *padding, *dilation, groups, offset_groups, use_mask)
    assert_matches_torch(operators.deform_conv2d.default, image, weight, offset, mask, bias, *options)
