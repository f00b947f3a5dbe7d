"""Python shows the user's line and the message of an error, not the frames of torch and fx_onnx."""

from __future__ import annotations

import sys
import traceback

import pytest
import torch

import fx_onnx
from fx_onnx.messages.errors import CaptureError, MissingPackageError, TranslationError
from tests.capture.sample_modules import Function


def shown(error: BaseException) -> list[str]:
    return "".join(traceback.format_exception(error)).splitlines()


def loop(x: torch.Tensor) -> torch.Tensor:
    for _ in range(int(x.sum())):
        x = x + 1
    return x


def test_a_failed_capture_is_short(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CaptureError) as caught:
        fx_onnx.export(Function(loop).eval(), (torch.ones(2),))
    lines = shown(caught.value)
    assert len(lines) < 10
    assert not any("/torch/" in line for line in lines)
    assert "GuardOnDataDependent" in type(caught.value.__context__).__name__
    assert capfd.readouterr() == ("", "")


def test_verbose_shows_everything() -> None:
    with pytest.raises(CaptureError) as caught:
        fx_onnx.export(Function(loop).eval(), (torch.ones(2),), verbose=True)
    assert caught.value.__cause__ is not None
    assert len(shown(caught.value)) > 50


def test_the_user_s_frames_of_a_cause_are_shown() -> None:
    def broken(op: object, *args: object) -> object:
        raise KeyError("in my translation")

    with pytest.raises(TranslationError) as caught:
        fx_onnx.export(
            torch.nn.ReLU(), (torch.ones(2),), custom_translation_table={torch.ops.aten.relu.default: broken}
        )
    lines = shown(caught.value)
    assert any("KeyError: 'in my translation'" in line for line in lines)
    assert all(__file__ in line or "fx_onnx/export.py" in line for line in lines if line.startswith("  File"))


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(fx_onnx, "pipeline", raising=False)
    monkeypatch.setitem(sys.modules, "fx_onnx.pipeline", None)
    with pytest.raises(MissingPackageError, match=r"needs the package fx_onnx\.pipeline, which is not installed"):
        fx_onnx.export(torch.nn.ReLU().eval(), (torch.ones(2),))
