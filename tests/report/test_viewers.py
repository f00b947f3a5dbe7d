"""Viewers: the report opens in the browser, and a viewer that is missing is named with its package."""

from __future__ import annotations

import importlib.util
import sys
import types
import webbrowser
from pathlib import Path

import onnx
import pytest
import torch

import fx_onnx
from fx_onnx import ArgumentError, ONNXProgram
from fx_onnx.messages.errors import MissingPackageError


@pytest.fixture(scope="module")
def program() -> ONNXProgram:
    return fx_onnx.export(torch.nn.ReLU().eval(), (torch.ones(2),))


def test_the_report(program: ONNXProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda uri: opened.append(uri) or True)
    path = program.view()
    assert opened == [path.as_uri()]
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_without_a_browser_the_file_is_named(program: ONNXProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda uri: False)
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="No browser could be opened"):
        program.view()


@pytest.mark.parametrize(
    ("viewer", "module", "start"),
    [("netron", "netron", "start"), ("model-explorer", "model_explorer", "visualize")],
)
def test_other_viewers(
    program: ONNXProgram, monkeypatch: pytest.MonkeyPatch, viewer: str, module: str, start: str
) -> None:
    opened: list[str] = []
    fake = types.ModuleType(module)
    setattr(fake, start, lambda path, **_: opened.append(path))
    monkeypatch.setitem(sys.modules, module, fake)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    path = program.view(viewer)
    assert opened == [str(path)]
    assert onnx.load(Path(opened[0])).graph.node[0].op_type == "Relu"


def test_a_viewer_that_is_missing(program: ONNXProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match="The viewer netron is not installed; `pip install netron`"):
        program.view("netron")
    for wrong in ("paint", 3):
        with pytest.raises(ArgumentError, match="the viewers are report, netron, model-explorer"):
            program.view(wrong)  # type: ignore[arg-type]
