"""A capture is repeated from a larger example only where the guards tell that the result can differ."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from fx_onnx.capture.capture import capture
from fx_onnx.capture.dynamic_dims import captured_inputs
from fx_onnx.capture.repeated_captures import larger_example_frees_parts
from fx_onnx.capture.request import parse_request
from tests.capture.sample_modules import Function, t


def chunks(x: Tensor, size: int = 16) -> Tensor:
    """Returns one row for each full or begun chunk. torch specializes the number of chunks of the example, 1."""
    count = (x.shape[0] + size - 1) // size
    return x[:count] + torch.zeros(count, x.shape[1])


def two_parts(x: Tensor) -> list[Tensor]:
    return list(x.split([2, x.shape[0] - 2]))


@pytest.mark.parametrize(
    ("function", "captures"),
    [(torch.relu, 1), (two_parts, 2), (chunks, 1), (lambda x: chunks(x, 4), 2), (lambda x: x.reshape(3, 4), 1)],
)
@pytest.mark.filterwarnings("ignore::fx_onnx.core.errors.OnnxExporterWarning")
def test_number_of_captures(function: Callable[..., object], captures: int, caplog: pytest.LogCaptureFixture) -> None:
    """12 rows are one chunk of 16, as 3 rows are, but three chunks of 4."""
    with caplog.at_level(logging.DEBUG, "fx_onnx.stages"):
        capture(parse_request(Function(function).eval(), (t(3, 4),), dynamic_shapes=({0: "n"},)))
    calls = [each.getMessage() for each in caplog.records if "torch.export.export(" in each.getMessage()]
    assert len(calls) == captures
    assert calls[0] == "torch.export.export(strict=False): the example of the call"
    assert all("because a part of the user's example has size 0 or 1" in each for each in calls[1:])


@pytest.mark.parametrize(("function", "frees"), [(two_parts, True), (chunks, False), (torch.relu, False)])
def test_the_guards_tell(function: Callable[..., object], frees: bool) -> None:
    module, x = Function(function).eval(), t(3, 4)
    program = torch.export.export(module, (x,), dynamic_shapes={"x": {0: torch.export.Dim.AUTO}})
    request = parse_request(module, (x,), dynamic_shapes=({0: "n"},))
    assert larger_example_frees_parts(request, captured_inputs(request, program)) == frees
