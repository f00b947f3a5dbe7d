"""The call of export() as text: what was given, without values of tensors."""

from pathlib import Path

import torch
from torch import nn

from fx_onnx.core.export_modes import TrainingMode
from fx_onnx.program.export_call import export_call


def test_only_what_was_given() -> None:
    given = {"model": nn.Linear(2, 2), "args": (torch.ones(2, 3),), "f": Path("m.onnx"), "opset": 20, "verify": False}
    assert export_call(given, {"f": None, "opset": None, "verify": False}) == (
        "fx_onnx.export(\n    Linear(...),\n    (float32[2, 3],),\n    f='m.onnx',\n    opset=20,\n)"
    )


class Shy:
    def __repr__(self) -> str:
        raise AssertionError("the class of a user is not asked for its text")


def test_values() -> None:
    given = {
        "model": nn.ReLU(),
        "args": (),
        "f": None,
        "shapes": ({0: "batch"}, [None, 1.5]),
        "functions": {nn.Linear},
        "training": TrainingMode.EVAL,
        "table": {torch.nn.ReLU: export_call},
        "other": Shy(),
        "many": list(range(30)),
    }
    text = export_call(given, dict.fromkeys(given))
    assert "    shapes=({0: 'batch'}, [None, 1.5]),\n    functions={Linear},\n    training=TrainingMode.EVAL,\n" in text
    assert "    table={ReLU: export_call},\n    other=Shy(...),\n" in text
    assert "22, 23, ...]" in text
