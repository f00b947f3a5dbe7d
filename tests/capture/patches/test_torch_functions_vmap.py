"""vmap whose results have the axis of the batch in another place than the first."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import vmap

import fx_onnx
from tests.capture.sample_modules import Function
from tests.compare import assert_close


@pytest.mark.parametrize(
    "function",
    [
        lambda x: vmap(torch.sin, in_dims=1, out_dims=-1)(x),
        lambda x: vmap(lambda y: (y.outer(y), y.sum()), out_dims=(1, 0))(x),
        lambda x: vmap(lambda y: y @ x.T, out_dims=1)(x),
    ],
)
def test_the_axis_of_the_batch_is_moved(function: Callable[[Tensor], Tensor]) -> None:
    module = Function(function).eval()
    program = fx_onnx.export(module, (torch.rand(3, 4),), dynamic_shapes=({0: "rows"},))
    for rows in (3, 5):
        x = torch.rand(rows, 4)
        assert_close(program(x), module(x))
