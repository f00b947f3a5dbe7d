"""The call of export() as text, and the arguments of an ExportableModule."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fx_onnx.export import export
from fx_onnx.program.export_call import call_text, given_arguments, with_own_examples
from fx_onnx.requests.export_modes import TrainingMode

DEFAULTS = {name: each.default for name, each in inspect.signature(export).parameters.items()}


def arguments(**given: Any) -> dict[str, Any]:
    """Returns the arguments of a call of export()."""
    return {**DEFAULTS, **given}


# ---------------------------------------------------------------- the call as text


def test_only_what_was_given() -> None:
    given = arguments(
        model=nn.Linear(2, 2), args=(torch.ones(2, 3),), f=Path("m.onnx"), opset_version=20, verify=False, check=True
    )
    assert given_arguments(given, DEFAULTS).keys() == {"model", "args", "f", "opset_version"}
    assert call_text(given, DEFAULTS) == (
        "fx_onnx.export(\n    Linear(...),\n    (float32[2, 3],),\n    f='m.onnx',\n    opset_version=20,\n)"
    )


class Shy:
    def __repr__(self) -> str:
        raise AssertionError("the class of a user is not asked for its text")


def test_values() -> None:
    given = arguments(
        model=nn.ReLU(),
        dynamic_shapes=({0: "batch"}, [None, 1.5]),
        training=TrainingMode.EVAL,
        export_modules_as_functions={nn.Linear},
        custom_translation_table={torch.nn.ReLU: export},
        kwargs={"other": Shy(), "many": list(range(30))},
    )
    text = call_text(given, DEFAULTS)
    assert "    dynamic_shapes=({0: 'batch'}, [None, 1.5]),\n" in text
    assert "    training=TrainingMode.EVAL,\n    export_modules_as_functions={Linear},\n" in text
    assert "    custom_translation_table={ReLU: export},\n" in text
    assert "    kwargs={'other': Shy(...), 'many': [0, 1," in text
    assert "22, 23, ...]" in text


# ---------------------------------------------------------------- the arguments that a module holds


class Model(torch.onnx.ExportableModule):
    def forward(self, x: Tensor) -> Tensor:
        return x

    def example_arguments(self) -> Any:
        return ("own",), None

    def dynamic_shapes(self) -> Any:
        return "own shapes"

    def input_names(self) -> list[str]:
        return ["own input"]


OWN = {"args": ("own",), "input_names": ["own input"], "dynamic_shapes": "own shapes"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, OWN),
        ({"args": []}, OWN),
        ({"input_names": ["x"]}, {**OWN, "input_names": ["x"]}),
        ({"dynamic_axes": {"x": [0]}}, {**OWN, "dynamic_shapes": None, "dynamic_axes": {"x": [0]}}),
        ({"args": (1,)}, {"args": (1,)}),
        ({"kwargs": {"x": 1}}, {"kwargs": {"x": 1}}),
    ],
)
def test_own_arguments(given: dict[str, Any], expected: dict[str, Any]) -> None:
    model = Model()
    found = with_own_examples(arguments(model=model, **given))
    assert {name: value or None for name, value in found.items()} == {
        name: value or None for name, value in arguments(model=model, **expected).items()
    }


def test_a_tensor_and_another_module_are_left() -> None:
    x = torch.ones(2)
    assert with_own_examples(arguments(model=Model(), args=x))["args"] is x
    assert with_own_examples(arguments(model=nn.ReLU()))["args"] == ()
