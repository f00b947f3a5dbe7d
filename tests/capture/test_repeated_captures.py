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


def rows(x: Tensor) -> Tensor:
    return torch.cat([x[i] for i in range(x.shape[0])])


def one_row(x: Tensor) -> Tensor:
    return x.squeeze(0) if x.shape[0] == 1 else x * 2


def more_rows(x: Tensor) -> Tensor:
    return x.new_ones(int(2.5 * x.shape[0]), 4).sum(0) + x


@pytest.mark.parametrize(
    ("function", "shape", "strict"),
    [(rows, [1, 4], False), (one_row, [1, 4], False), (more_rows, ["n", 4], True), (torch.relu, ["n", 4], None)],
)
@pytest.mark.filterwarnings("ignore::fx_onnx.core.errors.OnnxExporterWarning")
def test_number_of_captures_of_size_1(
    function: Callable[..., object], shape: list[int | str], strict: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The first capture tells whether the user's example or strict mode is next; None: there is no second capture."""
    module, x = Function(function).eval(), t(1, 4)
    with caplog.at_level(logging.DEBUG, "fx_onnx.stages"):
        captured = capture(parse_request(module, (x,), dynamic_shapes=({0: "n"},)))
    calls = [each.getMessage() for each in caplog.records if "torch.export.export(" in each.getMessage()]
    assert "are larger" in calls[0]
    assert [f"strict={strict}" in each for each in calls[1:]] == ([] if strict is None else [True])
    [placeholder] = captured.exported_program.graph.find_nodes(op="placeholder")
    assert [captured.symbol_names.get(str(size), size) for size in placeholder.meta["val"].shape] == shape
    torch.testing.assert_close(captured.exported_program.module()(x), module(x))


@pytest.mark.parametrize(("function", "frees"), [(two_parts, True), (chunks, False), (torch.relu, False)])
def test_the_guards_tell(function: Callable[..., object], frees: bool) -> None:
    module, x = Function(function).eval(), t(3, 4)
    program = torch.export.export(module, (x,), dynamic_shapes={"x": {0: torch.export.Dim.AUTO}})
    request = parse_request(module, (x,), dynamic_shapes=({0: "n"},))
    assert larger_example_frees_parts(request, captured_inputs(request, program)) == frees
