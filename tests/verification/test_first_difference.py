"""The parts are compared in groups, and a wrong part keeps what reproduces it."""

from __future__ import annotations

import pytest
import torch

from fx_onnx.verification import first_difference
from fx_onnx.verification.first_difference import PartComparison, inaccurate_in_eager
from fx_onnx.verification.reference_runs import Sides
from fx_onnx.verification.tensor_comparison import Difference
from tests.verification.sample_models import Encoder, X, export


def comparison(wrong: bool = False, times: int = 1) -> PartComparison:
    program = export(Encoder(times), X, wrong=wrong)
    return PartComparison(Sides(program), (X,), {})


@pytest.mark.parametrize("group_bytes", [1, 300, 10**9])
def test_parts_are_compared_in_groups(group_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many values a group has, the values and their order are the same."""
    monkeypatch.setattr(first_difference, "GROUP_BYTES", group_bytes)
    found = comparison(times=2)
    sessions: list[int] = []
    run = found.parts.run
    monkeypatch.setattr(found.parts, "run", lambda parts, values: sessions.append(len(parts)) or run(parts, values))
    compared = list(found)
    assert [each.part.node.name for each in compared] == [
        "linear", "gelu", "linear_1", "linear_2", "gelu_1", "linear_3", "relu", "linear_4",
    ]  # fmt: skip
    assert all(each.difference.ok for each in compared)
    assert found.is_complete and sum(sessions) == 8
    assert len(sessions) == {1: 8, 300: 7, 10**9: 1}[group_bytes] or (group_bytes == 300 and 1 < len(sessions) < 8)
    torch.testing.assert_close(found.results[0], Encoder(2)(X).detach())


def test_only_wrong_parts_differ() -> None:
    compared = list(comparison(wrong=True, times=2))
    assert [each.part.name for each in compared if not each.difference.ok] == ["gelu", "gelu_1"]
    wrong = next(each for each in compared if not each.difference.ok)
    assert [node.name for node in wrong.inside] == ["gelu"]
    torch.testing.assert_close(torch.nn.functional.gelu(wrong.inputs["linear"]), wrong.expected)


def test_a_part_that_does_not_run_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = comparison()
    run = found.parts.run

    def fails(parts, values):  # type: ignore[no-untyped-def]
        if any(part.name == "relu" for part in parts):
            raise RuntimeError("no kernel")
        return run(parts, values)

    monkeypatch.setattr(found.parts, "run", fails)
    assert [each.part.name for each in found] == ["linear", "gelu", "linear_1", "linear_2"]
    assert found.failures == {"relu": "RuntimeError: no kernel"}
    assert not found.is_complete


def test_a_difference_that_is_no_error() -> None:
    difference = inaccurate_in_eager(Difference("y", "float32", (1,), 1.0, 1.0, 0, 0.1, "differs"), 0.5, 0.25)
    assert difference.ok and difference.verdict == "inaccurate in eager"
    assert difference.note.endswith("its error is 0.25, PyTorch's 0.5")
