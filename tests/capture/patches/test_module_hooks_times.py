"""Times of modules: they are measured only on request, and the captured program is the same with and without."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx import CaptureError
from fx_onnx.capture.patches.module_hooks import measure_modules, watch_modules

X = torch.randn(2, 4)


class Slow(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.05)
        return x + 1


class Net(nn.Module):
    """Calls one module twice, and one in a branch of torch.cond, which dynamo traces."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(4, 4), Slow())
        self.branch = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.block(self.block(x))
        return torch.cond(x.sum() > 0, lambda x: self.branch(x), lambda x: x - 1, (x,))


def test_the_report_has_the_times_and_the_model_is_the_same(tmp_path: Path) -> None:
    model = Net().eval()
    fx_onnx.export(model, (X,), tmp_path / "plain.onnx")
    program = fx_onnx.export(model, (X,), tmp_path / "timed.onnx", report=True, artifacts_dir=tmp_path / "reports")
    assert (tmp_path / "plain.onnx").read_bytes() == (tmp_path / "timed.onnx").read_bytes()
    seconds = program.export_facts.module_seconds
    assert set(seconds) == {"", "block", "block.0", "block.1"}
    assert 0.1 <= seconds["block.1"] <= seconds["block"] <= seconds[""] <= program.timings["capture"]
    assert all(not each._forward_hooks and not each._forward_pre_hooks for each in model.modules())
    (text,) = (path.read_text(encoding="utf-8") for path in (tmp_path / "reports").glob("*.md"))
    assert "## Slowest modules" in text


def test_nothing_is_measured_without_a_request() -> None:
    assert fx_onnx.export(Net().eval(), (X,)).export_facts.module_seconds == {}
    with measure_modules() as seconds:
        seconds["old"] = 1.0
        with watch_modules(Slow(), strict=True):
            pass
    assert seconds == {}


class Fails(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Slow()

    def forward(self, x: Tensor) -> Tensor:
        self.inner(x)
        raise RuntimeError("no")


def test_a_failure_leaves_no_hooks(tmp_path: Path) -> None:
    model = Fails().eval()
    with pytest.raises(CaptureError):
        fx_onnx.export(model, (X,), report=True, artifacts_dir=tmp_path)
    assert all(not each._forward_hooks and not each._forward_pre_hooks for each in model.modules())
