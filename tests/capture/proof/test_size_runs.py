"""Runs of a module and its program at sizes: each once, without values first, then with numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from fx_onnx.capture.proof.input_sizes import InputSizes
from fx_onnx.capture.proof.paired_runs import Outcome, PairedRuns
from fx_onnx.capture.proof.size_runs import SizeRuns
from fx_onnx.requests.request import parse_request
from fx_onnx.torch_internals.torch_private import size_oblivious
from tests.capture.sample_modules import Function, t


def at_one(one: Callable[[Tensor], object]) -> Callable[[Tensor], object]:
    return lambda x: one(x) if x.shape[0] == 1 else x * 2


@pytest.mark.parametrize(
    ("one", "outcome", "of_numbers", "seen"),
    [
        (lambda x: x * 2, Outcome.EQUAL, Outcome.EQUAL, ""),
        (lambda x: x + x, Outcome.RENUMBERED, Outcome.EQUAL, ""),
        (lambda x: x * 3, Outcome.RENUMBERED, Outcome.DIFFERENT, "result 0: the "),
        (lambda x: x[:, :1], Outcome.DIFFERENT, Outcome.DIFFERENT, "result 0: the "),
        (lambda x: x.view(5), Outcome.RAISES, Outcome.RAISES, "the module raises RuntimeError: shape '[5]' is"),
    ],
)
def test_outcomes(one: Callable[[Tensor], object], outcome: Outcome, of_numbers: Outcome, seen: str) -> None:
    module, args = Function(at_one(one)), (t(4, 2),)
    with size_oblivious():
        program = torch.export.export(module, args, dynamic_shapes={"x": {0: Dim.AUTO}}, strict=False)
        sizes = InputSizes(parse_request(module, args, dynamic_shapes=({0: "n"},)), program)
        sizes.enlarge([])
        runs, point = SizeRuns(sizes, PairedRuns(module, program)), {sizes.inputs[0].dim(0): 1}
        assert runs.outcome(sizes.larger) is Outcome.EQUAL
        assert (runs.outcome(point), runs.of_numbers(point)) == (outcome, of_numbers)
    assert runs.seen(point).startswith(seen)
    assert (point in runs.equal) == (outcome is Outcome.EQUAL)


def test_inputs_of_many_elements_have_no_run_with_numbers() -> None:
    module, args = Function(torch.relu), (t(4, 2),)
    program = torch.export.export(module, args, dynamic_shapes={"x": {0: Dim.AUTO}}, strict=False)
    sizes = InputSizes(parse_request(module, args, dynamic_shapes=({0: "n"},)), program)
    sizes.enlarge([])
    runs = SizeRuns(sizes, PairedRuns(module, program))
    assert runs.of_numbers({sizes.inputs[0].dim(0): 2**12}) is Outcome.UNKNOWN
