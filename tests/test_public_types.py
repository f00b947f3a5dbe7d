"""``py.typed`` holds for pyright: the public names have known types, and what users write has no error.

Runs where the command pyright is on PATH: ``pip install 'pyright[nodejs]'`` in any environment.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fx_onnx
from fx_onnx.extension_points.rooms import TABLE

ROOT = Path(__file__).parents[1]
PYRIGHT = shutil.which("pyright")

pytestmark = pytest.mark.skipif(PYRIGHT is None, reason="pyright is not installed")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder that has the package as it is when installed."""
    folder = tmp_path_factory.mktemp("installed")
    shutil.copytree(ROOT / "fx_onnx", folder / "fx_onnx")
    shutil.copytree(ROOT / "decompositions", folder / "fx_onnx" / "decompositions")
    return folder


def pyright(installed: Path, folder: Path, *arguments: str) -> dict[str, Any]:
    """Runs pyright in a folder, which sees the package and the dependencies of this environment."""
    command = [str(PYRIGHT), "--pythonpath", sys.executable, "--outputjson", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def errors(installed: Path, mode: str, folder: Path) -> list[str]:
    """Returns the errors in the files of a folder, which are checked in pyright's mode ``strict`` or ``standard``."""
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": mode}))
    report = pyright(installed, folder)
    assert report["summary"]["filesAnalyzed"] == len([*folder.glob("*.py")]) > 0
    return [f"{row['file']}: {row['message']}" for row in report["generalDiagnostics"] if row["severity"] == "error"]


def test_the_types_of_the_public_names_are_known(installed: Path, tmp_path: Path) -> None:
    report = pyright(installed, tmp_path, "--verifytypes", "fx_onnx", "--ignoreexternal")
    symbols = report["typeCompleteness"]["symbols"]
    places = {name: TABLE["fx_onnx"].get(name, f"fx_onnx.messages.errors:{name}") for name in fx_onnx.__all__}
    public = tuple(path.replace(":", ".") for path in places.values())
    found = [row for row in symbols if row["name"] in public or row["name"].startswith(tuple(f"{p}." for p in public))]
    assert len({row["name"] for row in found} & set(public)) >= len(public) - 1  # all but __version__
    assert [row["name"] for row in found if not row["isTypeKnown"]] == []


def test_the_examples_of_the_readme_are_strictly_typed(installed: Path, tmp_path: Path) -> None:
    for number, code in enumerate(re.findall(r"```python[^\n]*\n(.*?)```", (ROOT / "README.md").read_text(), re.S)):
        (tmp_path / f"example{number}.py").write_text(code)
    assert errors(installed, "strict", tmp_path) == []


def test_the_documented_calls_of_torch_have_no_error_with_the_import_changed(installed: Path, tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "documented_calls.py", tmp_path)
    assert errors(installed, "standard", tmp_path) == []


def test_an_error_of_a_user_is_found(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text("import fx_onnx\nfx_onnx.export(3)\n")
    (error,) = errors(installed, "standard", tmp_path)
    assert 'cannot be assigned to parameter "model"' in error
