"""The log of the exporter: what it prints, and that it ends."""

from __future__ import annotations

import io
import logging

import pytest
import torch

import fx_onnx
from fx_onnx.compat import log


def test_the_log_has_stages_and_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(log._handler, "stream", stream)
    assert not fx_onnx.is_onnx_log_enabled()
    fx_onnx.enable_log()
    try:
        fx_onnx.enable_log()  # a second time changes nothing
        assert fx_onnx.is_onnx_log_enabled()
        fx_onnx.export(torch.nn.ReLU().eval(), (torch.randn(2),), optimize=False)
    finally:
        fx_onnx.disable_log()
    text = stream.getvalue()
    assert text.count("[fx_onnx.stages] capture: ") == 1
    assert "[fx_onnx.stages] optimize: skipped: optimize=False" in text
    assert not fx_onnx.is_onnx_log_enabled()
    assert log._handler not in logging.getLogger("fx_onnx").handlers
