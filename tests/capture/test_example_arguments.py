"""The arguments of an ExportableModule: used only if the call gives no example arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fx_onnx.capture.example_arguments import with_own_arguments


class Model(torch.onnx.ExportableModule):
    def forward(self, x: Tensor) -> Tensor:
        return x

    def example_arguments(self) -> Any:
        return ("own",), None

    def dynamic_shapes(self) -> Any:
        return "own shapes"

    def input_names(self) -> list[str]:
        return ["own input"]


EMPTY: dict[str, Any] = {
    "args": (), "kwargs": None, "input_names": None, "output_names": None, "dynamic_shapes": None, "dynamic_axes": None,
}  # fmt: skip
OWN = {**EMPTY, "args": ("own",), "input_names": ["own input"], "dynamic_shapes": "own shapes"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, OWN),
        ({"args": []}, OWN),
        ({"input_names": ["x"]}, {**OWN, "input_names": ["x"]}),
        ({"dynamic_axes": {"x": [0]}}, {**OWN, "dynamic_shapes": None, "dynamic_axes": {"x": [0]}}),
        ({"args": (1,)}, {**EMPTY, "args": (1,)}),
        ({"kwargs": {"x": 1}}, {**EMPTY, "kwargs": {"x": 1}}),
    ],
)
def test_own_arguments(given: dict[str, Any], expected: dict[str, Any]) -> None:
    model = Model()
    assert with_own_arguments({**EMPTY, **given, "model": model}) == {**expected, "model": model}


def test_a_tensor_and_another_module_are_left() -> None:
    x = torch.ones(2)
    assert with_own_arguments({**EMPTY, "args": x, "model": Model()})["args"] is x
    assert with_own_arguments({**EMPTY, "model": nn.ReLU()})["args"] == ()
