"""The check that packages of users resolve together with fx_onnx."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from unittest import mock

import pytest

from tools.client_requirements import main, resolve

REPORT = {"install": [{"metadata": {"name": name, "version": "2.0"}} for name in ("Timm", "torch", "six")]}


def pip(returncode: int, report: str = "", err: str = "") -> mock._patch[mock.Mock]:
    """Replaces pip, which writes a report, and warnings to its standard output."""

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        Path(command[command.index("--report") + 1]).write_text(report)
        return subprocess.CompletedProcess([], returncode, "WARNING: text", err)

    return mock.patch.object(subprocess, "run", side_effect=run)


def test_versions_are_those_of_pip(capsys: pytest.CaptureFixture[str]) -> None:
    with pip(0, json.dumps(REPORT)):
        assert resolve("timm") == {"timm": "2.0", "torch": "2.0", "six": "2.0"}
        assert main(["timm"]) == 0
    assert capsys.readouterr().out == "timm: timm 2.0, torch 2.0\n"


def test_a_conflict_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pip(1, err="text\nERROR: ResolutionImpossible\n"):
        assert main(["timm"]) == 1
    assert capsys.readouterr().out == "timm: ERROR: ResolutionImpossible\n"
