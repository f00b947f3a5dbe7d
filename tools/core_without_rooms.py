"""Runs the tests of the core in copies of the repository without the folder of each room, and without all of them.

    python -m tools.core_without_rooms [TESTS ...] [--rooms cli report] [--folder build/core_without_rooms]

A test that asks for what a missing room does is refused in the sentence that names the folder. All others pass.

A run continues where the last one in its folder ended: the results of a room are in ROOM.xml there, and a room that has
this file does not run again. The exit code is 1 if a test fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from fx_onnx.extension_points.rooms import ROOMS
from tools.core_tests import ROOT, core_tests
from tools.matrix import counted

ALL = "all"
"""The name of the run without any room."""

# ``pip install -e`` adds a finder to each process, which would find a missing folder in the checkout.
_ONLY_COPY = """
import sys
sys.meta_path = [each for each in sys.meta_path if "__editable__" not in getattr(each, "__module__", "")]
"""


def copy_without(rooms: Sequence[str], root: Path, copy: Path) -> None:
    """Copies the files of a repository, also those that git does not track yet, but not the folders of rooms."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()
    left_out = {("fx_onnx", room) for room in rooms}
    for name in names:
        if (root / name).is_file() and Path(name).parts[:2] not in left_out:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, copy / name)


def environment_of(copy: Path) -> dict[str, str]:
    """Returns the variables of a process that imports fx_onnx from a copy, and nothing that the copy lacks."""
    (copy / "sitecustomize.py").write_text(_ONLY_COPY, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}


def run(rooms: Sequence[str], tests: Sequence[str], report: Path, workers: int) -> None:
    """Runs tests without some rooms, and writes a JUnit report when they are done.

    Raises:
        RuntimeError: pytest did not run all the tests.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy_without(rooms, ROOT, Path(folder))
        environment = environment_of(Path(folder))
        options = ["-p", "no:cacheprovider", "-n", str(workers), f"--junitxml={folder}/report.xml"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests], cwd=folder, env=environment, check=False
        )
        if done.returncode not in (0, 1):  # it was interrupted, or did not find the tests
            raise RuntimeError(f"pytest ended with {done.returncode}")
        shutil.move(f"{folder}/report.xml", report)


def rooms_of(name: str) -> list[str]:
    """Returns the rooms that the run of this name leaves out."""
    return [*ROOMS] if name == ALL else [name]


def is_refused(case: ElementTree.Element, rooms: Sequence[str]) -> bool:
    """Returns whether a test ended with the sentence about the missing folder of one of these rooms."""
    told = "".join(each.get("message", "") + (each.text or "") for each in case if each.tag in ("failure", "error"))
    return any(f"has no folder {room}, which " in told for room in rooms)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the tests without each room that has no result yet, and prints a line for each room and each failure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "tests", nargs="*", default=core_tests(), help="folders and files; the default is all of the core"
    )
    parser.add_argument("--rooms", nargs="+", choices=[*ROOMS, ALL], default=[*ROOMS, ALL])
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "core_without_rooms")
    parser.add_argument("--workers", type=int, default=2, help="processes that run tests")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    failed = False
    for room in given.rooms:
        report = given.folder / f"{room}.xml"
        if not report.exists():
            run(rooms_of(room), given.tests, report, given.workers)
        cases = list(ElementTree.parse(report).iter("testcase"))
        refused = [case for case in cases if is_refused(case, rooms_of(room))]
        passed, skipped, failures = counted(room, [case for case in cases if case not in refused])
        counts = f"{passed} passed, {skipped} skipped, {len(refused)} refused, {len(failures)} failed"
        print(f"without {room}: {counts}", flush=True)
        for name in failures:
            print(f"    {name}")
        failed |= bool(failures)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
