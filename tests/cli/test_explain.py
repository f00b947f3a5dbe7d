"""``fx-onnx explain`` prints the explanation that the package has."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from fx_onnx.cli.app import app
from fx_onnx.messages.message_ids import MessageId


def test_one_id() -> None:
    result = CliRunner().invoke(app, ["explain", "FX1201"])
    assert result.exit_code == 0
    assert result.output.startswith("FX1201\nCause: ")
    assert "\nWhat to do: " in result.output
    assert max(map(len, result.output.splitlines())) <= 100


@pytest.mark.parametrize("text", ["1201", "fx1201", "[FX1201]", "[fx-onnx explain FX1201]"])
def test_other_ways_to_write_an_id(text: str) -> None:
    assert CliRunner().invoke(app, ["explain", text]).output.startswith("FX1201\n")


def test_all_ids() -> None:
    lines = CliRunner().invoke(app, ["explain"]).output.splitlines()
    assert [line[:6] for line in lines] == sorted(id.value for id in MessageId)
    assert "](" not in "".join(lines)


def test_an_unknown_id() -> None:
    result = CliRunner().invoke(app, ["explain", "FX9999"])
    assert result.exit_code == 1
    assert "No message has the id" in str(result.exception)
