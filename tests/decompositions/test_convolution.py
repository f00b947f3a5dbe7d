"""Convolutions under other names."""

import pytest
import torch

from tests.decompositions.same import assert_same

aten = torch.ops.aten


def test_conv_tbc() -> None:
    assert_same(aten.conv_tbc.default, torch.randn(7, 2, 4), torch.randn(3, 4, 5), torch.randn(5), 1)


@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("dilation", [[1], [2, 1]])
def test_padding_by_name(padding: str, dilation: list[int]) -> None:
    x, weight = torch.randn(2, 4, 9, 8), torch.randn(6, 4, 3, 4)
    assert_same(aten.conv2d.padding, x, weight, None, [1, 1], padding, dilation)


def test_slow_conv2d() -> None:
    x, weight = torch.randn(2, 4, 9, 8), torch.randn(6, 4, 3, 4)
    assert_same(aten._slow_conv2d_forward.default, x, weight, [3, 4], torch.randn(6), [2, 1], [1, 0])
