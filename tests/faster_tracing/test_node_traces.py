"""Stack traces of nodes."""

from __future__ import annotations

import linecache
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fx_onnx.faster_tracing.exact_replacements import faster_tracing
from fx_onnx.faster_tracing.node_traces import _Texts
from tests.torch_versions import needs


def _traces(module: nn.Module) -> list[Any]:
    return [node.meta.get("stack_trace") for node in torch.export.export(module, (torch.ones(2),)).graph.nodes]


class Edited(nn.Module):
    """Edits the file of a function while it is traced, and tells linecache."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def forward(self, x: Tensor) -> Tensor:
        """(n) to (n)."""
        for text in ("def forward(x):\n    return x + 1", "def forward(x):\n    return x + 1  # edited"):
            self.path.write_text(text)
            linecache.checkcache(str(self.path))
            variables: dict[str, Any] = {}
            exec(compile("def forward(x):\n    return x + 1", str(self.path), "exec"), variables)
            x = variables["forward"](x)
        return x


def test_an_edited_file_is_read_again(tmp_path: Path) -> None:
    module = Edited(tmp_path / "edited.py")
    expected = _traces(module)
    with faster_tracing():
        assert _traces(module) == expected
    assert "edited" in str(expected)


def forward(inner: bool = True) -> FrameType:
    return forward(False) if inner else sys._getframe()


@needs("known sources")
def test_frames_are_read_again_after_another_function_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    anchors: set[tuple[str, str]] = set()
    monkeypatch.setattr("torch.fx.proxy._STACK_TRACE_ANCHORS", anchors)
    texts = _Texts()
    first = texts.of(forward())
    assert first.count("in forward") == 2 and "in test_frames" not in first
    anchors.add((__file__, sys._getframe().f_code.co_name))
    assert "in test_frames" in texts.of(forward())
    assert texts.of(sys._getframe().f_back) == ""
