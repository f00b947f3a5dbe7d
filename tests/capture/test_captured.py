"""Each fact about a captured program is found once, because its search evaluates guards and runs the module."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

from fx_onnx.capture import captured, small_sizes
from fx_onnx.capture.capture import capture
from fx_onnx.capture.request import parse_request
from tests.capture.sample_modules import Function


def shortcut(x: Tensor) -> Tensor:
    """Gives the same result in both branches, and fails for fewer than 2 columns."""
    return x.sum(0) if x.shape[0] != 1 else x[0]


@pytest.mark.parametrize("rows", [1, 3])
def test_facts_are_found_once(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[object] = []
    compare, constraints = small_sizes._agrees, captured.size_constraints
    monkeypatch.setattr(small_sizes, "_agrees", lambda *given: found.append(given[-1]) or compare(*given))
    monkeypatch.setattr(captured, "size_constraints", lambda *given: found.append("all") or constraints(*given))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        capture(parse_request(Function(shortcut).eval(), (torch.rand(rows, 2),), dynamic_shapes=({0: "n"},)))
    assert len(found) == len(set(map(str, found))) == 2


def test_a_decision_comes_first() -> None:
    program = torch.export.export(torch.nn.Identity(), (torch.ones(1),))
    facts = captured.SizeFacts(parse_request(program), program)
    result = captured.Captured(program, False, facts, ("second",)).because("first")
    assert result.decisions == ("first", "second")
    assert (facts.constraints, facts.excluded_sizes(), facts.restrictions.count) == ([], [], 0)
    assert facts.hold_for_example() and not facts.exclude_example()
