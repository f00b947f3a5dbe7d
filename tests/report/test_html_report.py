"""The HTML report is one page that needs nothing else, and in which no text of the model is markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx import ONNXProgram
from fx_onnx.program.export_facts import Facts
from fx_onnx.report.facts import gather
from fx_onnx.report.html_report import head, page
from fx_onnx.verification.verify import Difference, Verification
from tests.browser import Browser, browser, missing
from tests.report.facts_examples import COMPLETE, FAILED

HOSTILE = "</script><script>document.title='owned'</script><!--<img src=x onerror=\"document.title='owned'\">'&ü\u2028"
MODULE = HOSTILE.replace(".", "").replace('"', "")
"""torch refuses dots in the name of a module, and cannot run a program with double quotes in it."""
ASSETS = Path(fx_onnx.__file__).parent / "report" / "assets"


class _Page(HTMLParser):
    """The elements of a page: (tag, attributes), and the texts of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] in ("script", "style", "title") and data.strip():
            self.texts.append((self.tags[-1], data))

    @property
    def facts(self) -> Any:
        return json.loads(next(text for tag, text in self.texts if tag == "script"))


class Hostile(nn.Module):
    """A model whose module is called as badly as torch allows."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential()
        self.inner.add_module(MODULE, nn.Linear(2, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).relu()


@pytest.fixture(scope="module")
def hostile() -> ONNXProgram:
    Hostile.__qualname__ = Hostile.__name__ = HOSTILE
    program = fx_onnx.export(Hostile().eval(), (torch.ones(1, 2),), input_names=[HOSTILE], verify=True)
    program.model.graph[0].name = HOSTILE
    return program


def test_the_page_has_the_same_elements_for_every_model(hostile: ONNXProgram, tmp_path: Path) -> None:
    hostile.save_html(tmp_path / "report.html")
    found = _Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    expected = ["html", "head", *["meta"] * 3, "title", "style", "body", "noscript", "main", *["script"] * 3]
    assert found.tags == expected == _Page(page(COMPLETE)).tags == _Page(page(Facts())).tags
    assert [tag for tag, _ in found.texts] == ["title", "style", "script", "script", "script"]
    assert {name for name, _ in found.attributes} <= {"lang", "charset", "http-equiv", "content", "name", "id", "type"}
    labels = [module["label"] for module in found.facts["graphs"][0]["modules"]]
    assert MODULE in labels
    assert found.facts["sections"][0]["rows"][0][1] == HOSTILE
    assert found.facts["graphs"][0]["nodes"][0][0] == HOSTILE


def test_nothing_comes_from_elsewhere() -> None:
    text = page(COMPLETE)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; style-src 'sha256-")
    bodies = re.findall(r"<(?:style|script)>(.*?)</(?:style|script)>", text, re.S)
    assert len(bodies) == 3
    for body in bodies:
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy[1]
    assert (
        re.findall(r"\b(?:src|href)=|@import|url\((?!#)|sourceMappingURL|\bfetch\(|XMLHttpRequest|\bimport\(", text)
        == []
    )


@pytest.mark.parametrize("name", ["graph.js", "report.js"])
def test_the_scripts_set_texts_only_and_are_short(name: str) -> None:
    script = (ASSETS / name).read_text(encoding="utf-8")
    markup = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function"
    assert re.findall(markup, script) == []
    assert len(script.splitlines()) <= 800


def test_the_layout_library_has_its_licence() -> None:
    licence = (ASSETS / "dagre.LICENSE.txt").read_text(encoding="utf-8")
    library = (ASSETS / "dagre.min.js").read_text(encoding="utf-8")
    for text in (licence, library, page(Facts())):
        assert "Permission is hereby granted, free of charge" in text
        assert "Copyright (c) 2012-2014 Chris Pettitt" in text


def test_numbers_that_json_lacks_are_texts() -> None:
    worst = Difference("y", "float32", (), float("inf"), float("nan"), 1, 0.0, "the shapes differ")
    program = fx_onnx.export(nn.ReLU().eval(), (torch.ones(2),), output_names=["y"])
    program.export_facts = Facts(stages=COMPLETE.stages, verification=Verification((worst,)))
    found = _Page(page(gather(program.export_facts, program, program.exported_program))).facts["graphs"][0]
    assert found["modules"][0]["difference"] == {
        "ok": False, "problem": "the shapes differ", "max": "inf", "relative": "nan", "allowed": 0.0
    }  # fmt: skip


def test_the_head_for_notebooks(hostile: ONNXProgram) -> None:
    found = hostile._repr_html_()
    assert _Page(found).tags[:3] == ["table", "caption", "tbody"]
    assert set(_Page(found).tags) == {"table", "caption", "tbody", "tr", "th", "td"}
    assert "Exported and verified. The output agrees with the module." in found
    assert "The export failed in the stage decompose." in head(FAILED)


# ---------------------------------------------------------------- in a browser

needs_browser = pytest.mark.skipif(bool(missing()), reason=missing() or "there is a browser")


class Deep(nn.Module):
    """Two blocks, and a chain of more operators than one level of the graph shows."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.second = nn.Sequential(nn.Linear(4, 4), nn.GELU())

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(x))
        for number in range(120):
            x = torch.sin(x) if number % 2 else torch.cos(x)
        return x


@pytest.fixture(scope="module")
def window(hostile: ONNXProgram, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("pages")
    hostile.save_html(folder / "hostile.html")
    fx_onnx.export(Deep().eval(), (torch.ones(1, 4),), verify=True).save_html(folder / "deep.html")
    (folder / "failed.html").write_text(page(FAILED), encoding="utf-8")
    with browser() as opened:
        yield opened, folder


def _texts(found: Browser, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.textContent)"
    texts: list[str] = found.run(script, selector)
    return texts


@needs_browser
def test_hostile_names_are_texts(window: tuple[Browser, Path]) -> None:
    found, folder = window
    found.open(folder / "hostile.html")
    assert found.run("return document.querySelectorAll('img, main script').length") == 0
    found.press("/", *"linear")
    assert MODULE[:20] in "".join(_texts(found, ".hits li"))
    found.press("Enter")
    assert MODULE in "".join(_texts(found, ".picked-facts dd"))
    assert found.run("return document.title") != "owned"
    assert found.messages() == []


@needs_browser
def test_modules_open_and_close(window: tuple[Browser, Path]) -> None:
    found, folder = window
    found.open(folder / "deep.html")
    assert _texts(found, "h1") == ["Exported and verified. The output agrees with the module."]
    folded = _texts(found, ".box text.strong")
    assert "first" in folded
    assert len(folded) < 20
    found.click(".box[aria-label^='first,']")
    assert found.run("return document.querySelectorAll('rect.opened').length") == 1
    assert "▾first  Sequential" in _texts(found, "tr[data-row] td:first-child")
    found.run("document.querySelector(\".box[aria-label='first']\").focus()")
    found.press("Enter")
    assert found.run("return document.querySelectorAll('rect.opened').length") == 0
    assert found.messages() == []


@needs_browser
def test_hover_shows_the_operator_and_the_line(window: tuple[Browser, Path]) -> None:
    found, folder = window
    found.open(folder / "deep.html")
    found.press("/", *"aten.gelu.default", "Enter")
    found.hover(".box.picked")
    time.sleep(0.1)
    (tip,) = _texts(found, ".tip")
    assert tip.startswith("Gelu")
    assert "aten.gelu.default" in tip
    assert re.search(r"\.py:\d+", tip)


@needs_browser
def test_a_failed_export_shows_the_error_without_a_graph(window: tuple[Browser, Path]) -> None:
    found, folder = window
    found.open(folder / "failed.html")
    assert _texts(found, "h1") == ["The export failed in the stage decompose."]
    assert "UnsupportedOperatorError" in _texts(found, "pre")[0]
    assert found.run("return document.querySelectorAll('svg').length") == 0


class Cached(nn.Module):
    """Layers in a chain, each with a cache of its own and a mask that all of them read."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([_Layer() for _ in range(6)])

    def forward(self, x: Tensor, mask: Tensor, cache: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        found = []
        for layer, past in zip(self.layers, cache, strict=True):
            x, new = layer(x, mask, past)
            found.append(new)
        return x.relu(), found


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        x = self.fc(x * mask)
        return x, x + past


@needs_browser
def test_the_graph_is_on_the_first_screen_with_groups_and_kinds(window: tuple[Browser, Path]) -> None:
    found, folder = window
    args = (torch.ones(1, 4), torch.ones(4), [torch.ones(1, 4)] * 6)
    names = ["y", *(f"new.{layer}" for layer in range(6))]
    fx_onnx.export(Cached().eval(), args, output_names=names).save_html(folder / "cached.html")
    found.resize(1400, 900)
    found.open(folder / "cached.html")
    top, bottom = found.run(
        "const {top, bottom} = document.querySelector('.canvas').getBoundingClientRect(); return [top, bottom]"
    )
    assert 0 < top < 300
    assert 700 < bottom <= 900
    assert "cache_* (6)" in _texts(found, ".box text.plain")  # one port with a rail instead of six
    assert found.run("return document.querySelectorAll('.link.rail').length") > 5
    assert _texts(found, ".kinds li") == ["products, convolutions 6", "activations 1", "elementwise 12"]
    assert found.run("return document.querySelectorAll('rect.strip.product').length") == 6
    middle = "({ x, width }) => x.baseVal.value + width.baseVal.value / 2"
    middles = found.run(f"return [...document.querySelectorAll('.box rect.module')].map({middle})")
    assert len({round(x) for x in middles}) == 1  # the layers are a straight chain
    rows = _texts(found, "td:nth-child(2)")
    found.click(".opener")
    assert len(_texts(found, "td:nth-child(2)")) == len(rows) + 6
    found.click(".opener")
    assert _texts(found, "td:nth-child(2)") == rows
    assert found.messages() == []
