"""The Python code in README.md and docs/ runs, links have targets, and the pages agree with the code."""

from __future__ import annotations

import io
import re
import runpy
import sys
import warnings
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch

import fx_onnx
from tools import docs_site

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@dataclass
class Program:
    """The ```python blocks of a page that make one program, and what the page says that it prints, warns or raises.

    A block marked ```python continued belongs to the program before it. A part of a file, which is not run, is marked
    ```python no-run. The blocks ```output, ```warning and ```error after a program are parts of its output.
    """

    page: Path
    source: str
    shown: dict[str, list[str]] = field(default_factory=lambda: {"output": [], "warning": [], "error": []})


def _programs(page: Path) -> list[Program]:
    found: list[Program] = []
    for kind, block in re.findall(r"^```([^\n`]+)\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S):
        if kind == "python":
            found.append(Program(page, block))
        elif kind == "python continued":
            found[-1].source += "\n\n" + block
        elif kind in ("output", "warning", "error"):
            found[-1].shown[kind].append(block)
    return found


def _run(program: Program, folder: Path) -> dict[str, str]:
    """Runs a program from a file, because torch.export reads the source; returns what it prints, warns and raises."""
    script = folder / "model.py"
    script.write_text(program.source, encoding="utf-8")
    texts = {"error": ""}
    with redirect_stdout(io.StringIO()) as stdout, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            runpy.run_path(str(script), run_name="__main__")
        except fx_onnx.OnnxExporterError as error:
            if not program.shown["error"]:
                raise
            texts["error"] = f"{type(error).__name__}: {error}"
    texts["output"] = stdout.getvalue()
    texts["warning"] = "\n".join(str(each.message) for each in caught)
    return {kind: _words(text.replace(f"{folder}/", "")) for kind, text in texts.items()}


def _skip_without_packages(source: str) -> None:
    """Skips the test if the program needs a package that fx_onnx does not need and that is not installed."""
    for package in {"onnxruntime_qnn", "torchao", "transformers"} & set(
        re.findall(r"^(?:import|from) (\w+)", source, re.M)
    ):
        pytest.importorskip(package)
    if re.search("^import torchvision", source, re.M):
        import_module("tests.torchvision_cpu")  # skips too, and replaces the kernels of torchvision where needed


def _words(text: str) -> str:
    """Returns the text in one line, because a page may break lines elsewhere, and without numbers of nodes.

    The number of nodes is one of the torch that is installed.
    """
    return re.sub(r"\b\d+ nodes", "nodes", " ".join(text.split()))


@pytest.mark.parametrize(
    "program",
    [pytest.param(each, id=f"{page.name}-{i}") for page in PAGES for i, each in enumerate(_programs(page))],
)
def test_python_runs(program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _skip_without_packages(program.source)
    monkeypatch.chdir(tmp_path)
    texts = _run(program, tmp_path)
    for kind, blocks in program.shown.items():
        for block in blocks:
            assert _words(block) in texts[kind]


@by_page
def test_partial_blocks_are_python(page: Path) -> None:
    for block in re.findall(r"^```python no-run\n(.*?)^```", page.read_text("utf-8"), re.M | re.S):
        compile(block, page.name, "exec")


def test_the_pass_of_the_page_passes_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two files that docs/add_a_pass.md writes, without writing them."""
    text = (ROOT / "docs" / "add_a_pass.md").read_text("utf-8")
    source, test = re.findall(r"^```python no-run\n(.*?)^```", text, re.M | re.S)
    module, tests = ModuleType("fx_onnx.passes.fusion.clip_fusion"), ModuleType("test_clip_fusion")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(source, module.__dict__)
    exec(test, tests.__dict__)
    found = [each for name, each in vars(tests).items() if name.startswith("test_")]
    assert len(found) == 3 and all(each.startswith("# ") for each in (source, test))
    for each in found:
        each()


@by_page
def test_links_have_targets(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@by_page
def test_anchors_exist(page: Path) -> None:
    """An anchor is a heading of the page that the link leads to, on the site and where Markdown is shown as it is."""
    text = _without_code(page.read_text("utf-8"))
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", text):
        if "://" not in target:
            headings = re.findall(
                r"^#+ (.+)$", _without_code(((page.parent / target) if target else page).read_text("utf-8")), re.M
            )
            assert anchor in {_github_anchor(each) for each in headings}, f"{target}#{anchor}"
            assert anchor in {_site_anchor(each) for each in headings}, f"{target}#{anchor}"


def _without_code(markdown: str) -> str:
    return re.sub(r"^```.*?^```", "", markdown, flags=re.M | re.S)


def _github_anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _site_anchor(heading: str) -> str:
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def test_every_page_is_in_the_navigation_once() -> None:
    """The pages at the root, such as README.md, are pages of the site too: see tools/docs_site.py."""
    (navigation,) = re.findall(r"^nav:\n(.*?)^\S", (ROOT / "mkdocs.yml").read_text("utf-8"), re.M | re.S)
    pages = [path.name for path in (ROOT / "docs").glob("*.md")] + list(docs_site.PAGES.values())
    assert sorted(re.findall(r"[\w/]+\.md", navigation)) == sorted(pages)


def test_the_api_page_has_every_public_name() -> None:
    text = (ROOT / "docs" / "api.md").read_text("utf-8")
    listed = re.findall(r"^::: fx_onnx\.(?:[\w.]+\.)?(\w+)$", text, re.M)
    assert set(fx_onnx.__all__) - {"__version__"} <= set(listed)


def test_links_on_the_site() -> None:
    """Links among pages lead to the site's pages; a link to another file becomes its text; code stays as it is."""
    text = "[a](docs/start.md#x) [b](fx_onnx/export.py) [`c`](CHANGELOG.md) `f[0](y.z)`\n```\nf[0](y.z)\n```\n"
    want = "[a](start.md#x) b [`c`](changelog.md) `f[0](y.z)`\n```\nf[0](y.z)\n```\n"
    assert docs_site.site_links(text, "") == want
    assert (
        docs_site.site_links("[a](start.md) [b](../README.md) [c](../tests/x.py)", "docs")
        == "[a](start.md) [b](index.md) c"
    )


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


EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))


@pytest.mark.parametrize(
    "script", [each for each in EXAMPLES if each.stem not in ("demo", "stages")], ids=lambda p: p.stem
)
def test_examples(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An example compares its results itself; it must also print, and warn of nothing."""
    _skip_without_packages(script.read_text("utf-8"))
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", fx_onnx.OnnxExporterWarning)
        runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out


def test_the_examples_are_listed_and_short() -> None:
    text = (ROOT / "docs" / "examples.md").read_text("utf-8")
    assert sorted(re.findall(r"\]\(examples/(\w+)\.py\) \| \S", text)) == [each.stem for each in EXAMPLES]
    for each in EXAMPLES:
        lines = each.read_text("utf-8").count("\n")
        assert lines <= 60 or each.stem in ("demo", "stages"), each
