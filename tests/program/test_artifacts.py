"""Tests of the files beside the model, after an export that succeeded and after one that failed."""

from pathlib import Path

import pytest

from fx_onnx.core.errors import CaptureError
from fx_onnx.program.artifacts import record


def test_only_requested_files_are_written(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with record(folder, verbose=None, report=False, profile=False, program=True):
        pass
    assert not folder.exists()


def test_report_and_profile_of_a_failure(tmp_path: Path) -> None:
    with (
        pytest.raises(CaptureError, match="no way"),
        record(tmp_path / "new", verbose=None, report=True, profile=True, program=True) as log,
        log.stage("capture"),
    ):
        raise CaptureError("no way")
    names = sorted(path.name.split("_", 4)[-1] for path in (tmp_path / "new").iterdir())
    assert names == ["capture.md", "profile.txt"]
    (report,) = (tmp_path / "new").glob("*.md")
    assert "CaptureError: no way" in report.read_text(encoding="utf-8")
