"""Decompositions of the variants of convolution against torch."""

import pytest
import torch

from tests.decompositions.harness import assert_matches_torch

aten = torch.ops.aten


def test_conv_tbc() -> None:
    assert_matches_torch(
        aten.conv_tbc.default, torch.randn(7, 2, 4), torch.randn(3, 4, 5), torch.randn(5), 1, tolerance=5e-7
    )


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("dilation", [[1], [2, 1]])
def test_named_padding(padding: str, dilation: list[int]) -> None:
    x, weight = torch.randn(2, 4, 9, 8), torch.randn(6, 4, 3, 4)
    assert_matches_torch(aten.conv2d.padding, x, weight, None, [1, 1], padding, dilation, tolerance=5e-7)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_conv_pads_explicitly(axes: int) -> None:
    target = (aten.conv1d.default, aten.conv2d.default, aten.conv3d.default)[axes - 1]
    x, weight = torch.randn([2, 4, 7, 6, 5][: 2 + axes]), torch.randn([4, 2, 3, 2, 2][: 2 + axes])
    assert_matches_torch(target, x, weight, torch.randn(4), [2], [1, 2, 3][:axes], [1], 2, tolerance=5e-7)


def test_slow_conv2d() -> None:
    x, weight = torch.randn(2, 4, 9, 8), torch.randn(6, 4, 3, 4)
    assert_matches_torch(
        aten._slow_conv2d_forward.default, x, weight, [3, 4], torch.randn(6), [2, 1], [1, 0], tolerance=5e-7
    )


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_conv_transpose(axes: int) -> None:
    target = (aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input)[axes - 1]
    x, weight = torch.randn([2, 4, 7, 6, 5][: 2 + axes]), torch.randn([4, 3, 3, 2, 2][: 2 + axes])
    assert_matches_torch(target, x, weight, torch.randn(6), [2], [1], [3], 2, [4], tolerance=5e-7)
    assert_matches_torch(
        target, x, weight, None, [2, 3, 1][:axes], [2, 0, 3][:axes], [1, 1, 2][:axes], 1, [3], tolerance=5e-7
    )


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolution(axes: int, transposed: bool) -> None:
    x, weight = torch.randn([2, 4, 7, 6, 5][: 2 + axes]), torch.randn([4, 4, 3, 2, 2][: 2 + axes])
    spread = [[n] * axes for n in (1, 1, 3)]
    extra = [2 * transposed] * axes
    assert_matches_torch(
        aten.convolution.default, x, weight, torch.randn(4), *spread, transposed, extra, 1, tolerance=5e-7
    )
    assert_matches_torch(
        aten._convolution.default, x, weight, None, *spread, transposed, extra, 1, *[False] * 4, tolerance=5e-7
    )
