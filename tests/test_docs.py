"""The Python in README.md and docs/ runs, the links lead somewhere, and the text is of this project."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def _blocks() -> list[object]:
    """The ```python blocks; one that shows part of a file is marked ```python no-run."""
    found = []
    for page in PAGES:
        for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)):
            found.append(pytest.param(block, id=f"{page.name}-{number}"))
    return found


@pytest.mark.parametrize("block", _blocks())
def test_python_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of its own, from a file, as torch.export wants to see the source."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "block.py"
    script.write_text(block, encoding="utf-8")
    runpy.run_path(str(script), run_name="__main__")


@by_page
def test_parts_of_files_are_python(page: Path) -> None:
    for block in re.findall(r"^```python no-run\n(.*?)^```", page.read_text("utf-8"), re.M | re.S):
        compile(block, page.name, "exec")


@by_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@by_page
def test_files_that_are_named_exist(page: Path) -> None:
    """A path in backticks with a folder and an ending is one of this repository."""
    for name in re.findall(r"`([\w./]+/[\w.]+\.(?:py|md|txt|toml))`", page.read_text("utf-8")):
        assert (ROOT / name).exists(), name


def test_the_architecture_page_names_every_file() -> None:
    """So that it cannot fall behind the code."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    files = [path.stem for path in (ROOT / "fx_onnx").glob("*.py") if path.stem != "__init__"]
    missing = [stem for stem in files if f"`{stem}.py`" not in text]
    assert not missing


def test_the_readme_names_every_parameter_of_export() -> None:
    import inspect

    import fx_onnx

    text = (ROOT / "README.md").read_text("utf-8")
    missing = [name for name in inspect.signature(fx_onnx.export).parameters if f"`{name}`" not in text]
    assert not missing


def test_the_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends well, its text is ASCII, and the file is where it says."""
    target = tmp_path / "encoder.onnx"
    monkeypatch.setattr(sys, "argv", ["demo.py", str(target)])
    runpy.run_path(str(ROOT / "docs" / "examples" / "demo.py"), run_name="__main__")
    text = capsys.readouterr().out
    assert text.isascii()
    assert str(target) in text
    assert target.stat().st_size > 1_000_000
    assert "[batch, sequence]" in text


@pytest.mark.parametrize(("heading", "folder"), [("Translations", "fx_onnx/ops"), ("Decompositions", "decompositions")])
def test_the_operator_page_lists_every_family(heading: str, folder: str) -> None:
    text = (ROOT / "docs" / "add_an_op.md").read_text("utf-8")
    (table,) = re.findall(rf"^{heading}, in `{folder}/`:\n\n((?:\|.*\n)+)", text, re.M)
    listed = re.findall(r"^\| `(\w+)\.py` \| \S", table, re.M)
    families = [path.stem for path in (ROOT / folder).glob("*.py") if not path.stem.startswith("_")]
    assert listed == sorted(set(families) - {"registry"})
