"""The facts of a capture are found once, because their search runs the module on fake tensors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fx_onnx
from fx_onnx.capture.capture import capture
from fx_onnx.capture.captured import Captured
from fx_onnx.capture.proof.paired_runs import PairedRuns
from fx_onnx.capture.proof.size_proof import SizeProof
from fx_onnx.messages.errors import OnnxExporterWarning
from fx_onnx.requests.request import parse_request
from tests.capture.sample_modules import Function
from tests.compare import assert_close


def shortcut(x: Tensor) -> Tensor:
    """Gives the same result in both branches."""
    return x.sum(0) if x.shape[0] != 1 else x[0]


def test_no_size_is_tried_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[int, ...]] = []
    compare = PairedRuns.compare

    def compared(self: PairedRuns, given: object, *rest: object) -> object:
        found.append(tuple(given()[0][0].shape))
        return compare(self, given, *rest)

    monkeypatch.setattr(PairedRuns, "compare", compared)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OnnxExporterWarning)
        capture(parse_request(Function(shortcut).eval(), (torch.rand(3, 2),), dynamic_shapes=({0: "n"},)))
    assert (1, 2) in found
    assert len(found) == len(set(found))


def test_a_decision_comes_first() -> None:
    program = torch.export.export(torch.nn.Identity(), (torch.ones(1),))
    facts = SizeProof(parse_request(program), program, PairedRuns(None, program))
    result = Captured(program, False, facts, ("second",)).because("first")
    assert result.decisions == ("first", "second")
    assert (result.restrictions, result.truncates_sizes) == (0, False)


def hops(x: Tensor) -> Tensor:
    """Pads to whole hops, and more where they are few."""
    k = int(math.ceil(x.shape[-1] / 8))  # noqa: RUF046
    y = F.pad(x, (0, k * 8 - x.shape[-1]))
    return y * 2 if x.shape[-1] <= 2 * k else y


def share(x: Tensor) -> Tensor:
    """Keeps a share of the positions, and two at least."""
    k = int(0.7 * x.shape[-1])
    return x[:, : k if k > 2 else 2]


def middle(x: Tensor) -> Tensor:
    """Asks before the number is made."""
    y = x + 1 if x.shape[-1] > 9 else x
    return y[:, int(math.floor(x.shape[-1] / 3)) :]  # noqa: RUF046


def windows(x: Tensor) -> Tensor:
    """Compares two numbers that are made of the size."""
    count, rest = int(x.shape[-1] / 4), int(math.ceil(x.shape[-1] / 5))  # noqa: RUF046
    return x[:, :count] if count < 2 * rest else x


@pytest.mark.parametrize("function", [hops, share, middle, windows])
def test_a_number_of_a_size_stays_dynamic_beside_a_branch(function: Callable[[Tensor], Tensor]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fx_onnx.OnnxExporterWarning)
        program = fx_onnx.export(Function(function).eval(), (torch.rand(2, 40),), dynamic_shapes=({1: "n"},))
    for size in (40, 13, 27, 64):
        x = torch.rand(2, size)
        assert_close(program(x)[0], function(x))
