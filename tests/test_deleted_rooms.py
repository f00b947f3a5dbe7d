"""The folder of each room, and of all, can be deleted: all else is right; what a room does is refused by name."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fx_onnx.extension_points.rooms import ROOMS
from tests.sources import DECOMPOSITIONS, PACKAGE, ROOT
from tools.core_without_rooms import environment_of


@pytest.mark.parametrize("rooms", [*([room] for room in sorted(ROOMS)), sorted(ROOMS)], ids=" ".join)
def test_the_folder_of_a_room_can_be_deleted(rooms: list[str], tmp_path: Path) -> None:
    copy = tmp_path / "fx_onnx"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", *rooms))
    shutil.copytree(DECOMPOSITIONS, copy / "decompositions", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    environment = environment_of(tmp_path)
    names = sorted(tmp_path.iterdir())
    command = [sys.executable, "-W", "ignore", "-m", "tests.without_room", *rooms]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        assert line.startswith(("refused:", "told:")), line
        assert any(f"has no folder {room}, which {ROOMS[room]}; install fx_onnx again." in line for room in rooms)
    assert sorted(tmp_path.iterdir()) == names  # nothing was written
