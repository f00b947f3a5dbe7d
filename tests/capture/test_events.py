"""A log and a sink that ignores events are both EventSinks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fx_onnx.capture.capture import capture
from fx_onnx.capture.events import EventSink, IgnoredEvents
from fx_onnx.capture.request import parse_request
from fx_onnx.program.export_log import ExportLog


class BreaksNonStrict(nn.Module):
    """Its forward raises an error outside of strict mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_dynamo_compiling():
            raise RuntimeError("only in strict mode")
        return x + 1


def test_a_stage_reports_its_decision_to_the_sink() -> None:
    log = ExportLog()
    sink: EventSink = log
    captured = capture(parse_request(BreaksNonStrict().eval(), (torch.ones(2),)), sink)
    assert captured.strategy == "torch.export(strict=True)"
    (decision,) = log.notes["capture"]
    assert decision.startswith("repeated in strict mode, because non-strict mode raised RuntimeError: ")


@pytest.mark.parametrize("sink", [IgnoredEvents(), None])
def test_events_can_be_ignored(sink: EventSink | None) -> None:
    captured = capture(parse_request(BreaksNonStrict().eval(), (torch.ones(2),)), sink)
    assert captured.strategy == "torch.export(strict=True)"
