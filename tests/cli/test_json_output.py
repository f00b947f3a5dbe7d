"""The objects that the commands print with --json."""

from __future__ import annotations

import json

import pytest

from fx_onnx.cli.json_output import failure, print_json
from fx_onnx.messages.errors import CaptureError
from fx_onnx.messages.message_ids import Finding, MessageId


def test_a_failure_has_its_id_its_place_and_the_warnings_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    error = CaptureError("no capture (model.py:3: x + y)")
    error.findings = (Finding(MessageId.STATIC_DIM, "axis 0 is static"),)
    print_json(failure(error))
    assert json.loads(capsys.readouterr().out) == {
        "error": {"id": "FX1101", "message": "no capture (model.py:3: x + y)", "place": "model.py:3"},
        "warnings": ["axis 0 is static [FX1201]"],
    }


def test_a_failure_without_a_line_has_no_place() -> None:
    assert failure(CaptureError("no capture"))["error"]["place"] is None
