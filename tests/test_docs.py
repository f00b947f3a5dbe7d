"""The Python code in README.md and docs/ runs, links have targets, and the pages agree with the code."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def _blocks() -> list[object]:
    """Returns the ```python blocks that are whole programs; a part of a file is marked ```python no-run."""
    found = []
    for page in PAGES:
        for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)):
            found.append(pytest.param(block, id=f"{page.name}-{number}"))
    return found


@pytest.mark.parametrize("block", _blocks())
def test_python_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block runs from a file, because torch.export reads the source."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "block.py"
    script.write_text(block, encoding="utf-8")
    runpy.run_path(str(script), run_name="__main__")


@by_page
def test_partial_blocks_are_python(page: Path) -> None:
    for block in re.findall(r"^```python no-run\n(.*?)^```", page.read_text("utf-8"), re.M | re.S):
        compile(block, page.name, "exec")


@by_page
def test_links_have_targets(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@by_page
def test_named_files_exist(page: Path) -> None:
    """A path in backticks, with a folder and a suffix, is a file of this repository."""
    for name in re.findall(r"`([\w./]+/[\w.]+\.(?:py|md|txt|toml))`", page.read_text("utf-8")):
        assert (ROOT / name).exists(), name


def test_the_architecture_page_lists_every_folder() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    folders = [path.name for path in (ROOT / "fx_onnx").iterdir() if (path / "__init__.py").exists()]
    assert [name for name in folders if f"| `fx_onnx/{name}/` |" not in text] == []


def test_the_architecture_page_shows_the_example_after_every_stage() -> None:
    """The blocks are the output of docs/examples/stages.py, in the same order."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    script = ROOT / "docs" / "examples" / "stages.py"
    shown = re.findall(r"^```after-(\w+)\n(.*?)\n^```", text, re.M | re.S)
    assert shown == list(runpy.run_path(str(script))["texts"]())
    (model,) = re.findall(r"^class Example.*?\n(?=\n\n)", script.read_text("utf-8"), re.M | re.S)
    assert model in text


def test_the_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo succeeds, prints ASCII, and writes the file that it names."""
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
