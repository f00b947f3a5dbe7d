"""A path answers the conversions to a bool that torch cannot decide, and a later run gets the same answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fx_onnx.capture.patches import torch_export
from fx_onnx.capture.patches.patching import apply_patches
from fx_onnx.data_branches.path_answers import PathAnswers, Told, is_of_model
from tests.data_branches.branching_modules import POSITIVE


class Always(PathAnswers):
    """Answers that each condition is true."""

    def begin(self) -> None:
        """Begins a trace."""
        super().begin()
        self.marked: list[bool] = []

    def decide(self, value: Any, frame: Any) -> Told:
        """Returns that it is true."""
        return Told(True, is_new=True)

    def mark(self, value: Any, answer: bool) -> None:
        """Keeps the answer."""
        self.marked.append(answer)


class Asking(nn.Module):
    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if self.function(x) else x - 1


ASKED: dict[str, Callable[[Tensor], Any]] = {
    "values": lambda x: x.sum() > 0,
    "rows": lambda x: x.nonzero().shape[0],
    "a comparison": lambda x: x.nonzero().shape[0] > 3,
    "a float": lambda x: x.sum().item(),
}


@pytest.mark.parametrize("asked", ASKED)
def test_a_path_answers_what_torch_cannot_decide(asked: str) -> None:
    model, path, errors = Asking(ASKED[asked]), Always(), list[Exception]()
    with apply_patches(torch_export.PATCHES), path.watched(model, errors):
        program = torch.export.export(model, (POSITIVE,), strict=False)
        assert path.marked == [True] and not errors and not path.is_trace
        (given,) = (node.meta["val"] for node in program.graph.find_nodes(op="placeholder"))
        with given.fake_mode, given.fake_mode.shape_env.ignore_fresh_unbacked_symbols():
            model(given)
    assert path.marked == [True, True]
    assert torch.equal(program.module(check_guards=False)(POSITIVE), POSITIVE + 1)


def test_what_torch_decides_is_not_answered() -> None:
    model, path = Asking(lambda x: x.shape[0] > 100), Always()
    with path.watched(model, []):
        program = torch.export.export(model, (POSITIVE,), strict=False)
    assert not path.marked and torch.equal(program.module()(POSITIVE), POSITIVE - 1)


@pytest.mark.parametrize(("name", "is_one"), [("nn/functional.py", True), ("_ops.py", False)])
def test_functions_of_torch_that_decide_as_a_model_does(name: str, is_one: bool) -> None:
    assert is_of_model(str(Path(torch.__file__).parent / name)) is is_one
    assert is_of_model(__file__)
