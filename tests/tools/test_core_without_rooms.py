"""The tests of the core without each room: what the copy has, and that a run continues."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import core_without_rooms
from tools.core_without_rooms import copy_without, main

TEST = """
import fx_onnx
from fx_onnx.extension_points.rooms import is_installed

def test_report(): assert is_installed("report")
def test_cli(): assert is_installed("cli")
def test_layout(): fx_onnx.Layout
"""


def test_the_copy_lacks_the_rooms_only(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    names = [".gitignore", "fx_onnx/a.py", "fx_onnx/cli/b.py", "fx_onnx/report/c.py", "tests/cli/d.py", "ignored.txt"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("ignored.txt\ncopy\n")
    copy_without(["cli"], tmp_path, tmp_path / "copy")
    found = [
        path.relative_to(tmp_path / "copy").as_posix() for path in (tmp_path / "copy").rglob("*.*") if path.is_file()
    ]
    assert sorted(found) == [".gitignore", "fx_onnx/a.py", "fx_onnx/report/c.py", "tests/cli/d.py"]


def test_a_failure_is_reported_and_a_room_runs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_rooms.py").write_text(TEST)
    options = [str(tmp_path / "test_rooms.py"), "--folder", str(tmp_path / "results"), "--workers", "0", "--rooms"]
    assert main([*options, "report", "libraries"]) == 1
    printed = capfd.readouterr().out
    assert "without report: 2 passed, 0 skipped, 0 refused, 1 failed\n    " in printed
    assert "::test_report\n" in printed
    assert "without libraries: 3 passed, 0 skipped, 0 refused, 0 failed\n" in printed
    with pytest.raises(RuntimeError, match="pytest ended with 4"):
        main([str(tmp_path / "nothing.py"), *options[1:], "cli"])
    monkeypatch.setattr(core_without_rooms, "run", None)  # nothing runs again
    assert main([*options, "libraries"]) == 0
    monkeypatch.undo()
    assert main([*options, "all"]) == 1
    assert "without all: 0 passed, 0 skipped, 1 refused, 2 failed" in capfd.readouterr().out
