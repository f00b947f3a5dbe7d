"""Sizes that a forward rounds: layers with padding of the size "same", windows, and quotients of negative divisors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.torch_internals.torch_private import symbolic_expression
from tests.capture.sample_modules import Function
from tests.compare import assert_close

WEIGHT = torch.randn(2, 2, 3, 3)
PADDING: dict[str, Callable[[Any], Any]] = {
    "remainder": lambda n: max(2 - (n - 1) % 2, 0),
    "ceiling": lambda n: max((math.ceil(n / 2) - 1) * 2 + 3 - n, 0),
    "negative": lambda n: max((-(n // -2) - 1) * 2 + 3 - n, 0),
    "window": lambda n: (5 - n % 5) % 5,
}


class Strided(nn.Module):
    """Pads and convolves four times."""

    def __init__(self, padding: Callable[[Any], Any]) -> None:
        super().__init__()
        self.padding = padding

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(4):
            added = [part for n in reversed(x.shape[2:]) for p in [self.padding(n)] for part in (p // 2, p - p // 2)]
            x = torch.conv2d(nn.functional.pad(x, added), WEIGHT, stride=2)
        return x


@pytest.mark.filterwarnings("error::fx_onnx.OnnxExporterWarning")
@pytest.mark.parametrize("name", PADDING)
def test_padded_sizes_stay_short(name: str) -> None:
    module = Strided(PADDING[name]).eval()
    shapes = ({2: "height", 3: "width"},)
    program = fx_onnx.export(module, (torch.randn(1, 2, 64, 64),), dynamic_shapes=shapes, verbose=False)
    (output,) = program.exported_program.graph.find_nodes(op="output")
    assert len(str(symbolic_expression(output.args[0][0].meta["val"].shape[2]))) < 110
    for size in ((64, 64), (61, 66), (50, 47)):
        x = torch.randn(1, 2, *size)
        assert_close(program(x)[0], module(x))


@pytest.mark.parametrize("divisor", [-2, -3])
def test_a_quotient_of_a_quotient_and_a_negative_number(divisor: int) -> None:
    module = Function(lambda x: x.new_ones(1 - (x.shape[0] // 2) // divisor)).eval()
    program = fx_onnx.export(module, (torch.ones(7),), dynamic_shapes=({0: "n"},), verbose=False)
    for size in range(2, 12):
        assert_close(program(torch.ones(size))[0], module(torch.ones(size)))


POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "maxima": lambda x: nn.functional.max_pool2d(x, 2, 3, ceil_mode=True),
    "maxima with dilation": lambda x: nn.functional.max_pool2d(x, 2, 3, 1, 2, ceil_mode=True),
    "maxima along one axis": lambda x: nn.functional.max_pool1d(x[0], 2, 5, 1, ceil_mode=True),
    "means": lambda x: nn.functional.avg_pool2d(x, 2, 4, 1, ceil_mode=True),
    "sums": lambda x: nn.functional.avg_pool2d(x, 1, 3, ceil_mode=True, divisor_override=2),
    "means in space": lambda x: nn.functional.avg_pool3d(x, 2, 3, 1, ceil_mode=True),
}


@pytest.mark.filterwarnings("error::fx_onnx.OnnxExporterWarning")
@pytest.mark.parametrize("example", [6, 7, 8])
@pytest.mark.parametrize("name", POOLS)
def test_windows_that_ceil_mode_leaves_out_where_the_stride_is_larger(name: str, example: int) -> None:
    module = Function(lambda x: (y := POOLS[name](x), y * torch.arange(y.shape[-1]))).eval()
    shapes = ({2: "height", 3: "width"},)
    program = fx_onnx.export(module, (torch.randn(1, 2, example, 9),), dynamic_shapes=shapes, verbose=False)
    for height, width in ((2, 3), (3, 2), (4, 7), (5, 4), (8, 5), (9, 8), (10, 11)):
        x = torch.randn(1, 2, height, width)
        for got, want in zip(program(x), module(x), strict=True):
            assert_close(got, want)
