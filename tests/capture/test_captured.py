"""The facts of a capture are found once, because their search runs the module on fake tensors."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

from fx_onnx.capture.capture import capture
from fx_onnx.capture.captured import Captured
from fx_onnx.capture.request import parse_request
from fx_onnx.capture.size_proof import SizeProof
from fx_onnx.capture.value_numbers import FakeRuns
from fx_onnx.messages.errors import OnnxExporterWarning
from tests.capture.sample_modules import Function


def shortcut(x: Tensor) -> Tensor:
    """Gives the same result in both branches."""
    return x.sum(0) if x.shape[0] != 1 else x[0]


def test_no_size_is_tried_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[int, ...]] = []
    compare = FakeRuns.compare

    def compared(self: FakeRuns, given: object, *rest: object) -> object:
        found.append(tuple(given()[0][0].shape))
        return compare(self, given, *rest)

    monkeypatch.setattr(FakeRuns, "compare", compared)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        capture(parse_request(Function(shortcut).eval(), (torch.rand(3, 2),), dynamic_shapes=({0: "n"},)))
    assert (1, 2) in found
    assert len(found) == len(set(found))


def test_a_decision_comes_first() -> None:
    program = torch.export.export(torch.nn.Identity(), (torch.ones(1),))
    facts = SizeProof(parse_request(program), program, FakeRuns(None, program))
    result = Captured(program, False, facts, ("second",)).because("first")
    assert result.decisions == ("first", "second")
    assert (result.restrictions, result.truncates_sizes) == (0, False)
