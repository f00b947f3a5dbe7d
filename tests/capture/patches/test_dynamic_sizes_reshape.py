"""``torch.onnx.operators.reshape_from_tensor_shape`` reads a shape that is computed from sizes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.onnx.operators import reshape_from_tensor_shape, shape_as_tensor

import fx_onnx
from tests.modules import FunctionModule

CASES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "its own shape": lambda x: reshape_from_tensor_shape(x, shape_as_tensor(x)),
    "flipped": lambda x: reshape_from_tensor_shape(x, shape_as_tensor(x).flip(0)),
    "a computed one": lambda x: reshape_from_tensor_shape(
        x, torch.cat([shape_as_tensor(x)[:1] * 3, shape_as_tensor(x)[1:] // 3])
    ),
    "a constant": lambda x: reshape_from_tensor_shape(x, torch.tensor([-1])),
}


@pytest.mark.parametrize("function", CASES.values(), ids=list(CASES))
def test_a_shape_in_a_tensor(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    program = fx_onnx.export(FunctionModule(function), (torch.randn(2, 3),), dynamic_shapes=(({0: "n"},),))
    for n in (1, 2, 4):
        x = torch.randn(n, 3)
        torch.testing.assert_close(program(x)[0], function(x))
