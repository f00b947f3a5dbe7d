"""The bar moves within the stages, appears where somebody sees it, and is gone afterwards."""

from __future__ import annotations

import io
import itertools
import logging
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

import fx_onnx
from fx_onnx.files import streaming
from fx_onnx.messages.progress import progress_of_part
from fx_onnx.program import progress_bar as module
from fx_onnx.program.progress_bar import ProgressBar, is_interactive, progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Bar:
    """Records the positions of a bar."""

    def __init__(self) -> None:
        self.n, self.stages, self.drawn = 0.0, [], 0

    def set_description_str(self, text: str, refresh: bool) -> None:
        self.stages.append(text)

    def refresh(self) -> None:
        self.drawn += 1


def test_the_bar_moves_within_stages_and_never_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.time, "monotonic", itertools.count(0, 9).__next__)
    bar = Bar()
    shown = ProgressBar(bar, {"capture", "functionalize", "decompose"})
    shown.start("capture")
    shown.within(1, 2)
    half = bar.n
    shown.within(1, 4)  # the capture is repeated
    assert bar.n == half > 40
    shown.start("functionalize")
    assert bar.n > 90
    with progress_of_part("unet (1 of 3)"):
        shown.start("decompose")
    shown.within(9, 8)
    assert bar.n == pytest.approx(100)
    assert bar.stages == ["capture", "functionalize", "unet (1 of 3) decompose"]


def test_the_steps_of_a_stage_draw_nothing_until_the_clock_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    bar = Bar()
    shown = ProgressBar(bar, {"capture", "optimize"})
    shown.start("capture")
    drawn = {}
    for now[0] in (1.9, 2.0, 2.01, 2.2, 2.3):
        shown.within(1, 2)
        drawn[now[0]] = bar.drawn
    assert drawn == {1.9: 0, 2.0: 1, 2.01: 1, 2.2: 1, 2.3: 2}
    shown.start("functionalize")
    assert bar.drawn == 2
    shown.start("optimize")
    assert bar.drawn == 3, "a stage that may be long is shown when it begins"


@pytest.mark.parametrize(("ci", "expected"), [("", True), ("true", False)])
def test_a_terminal_is_interactive_outside_of_ci(monkeypatch: pytest.MonkeyPatch, ci: str, expected: bool) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert is_interactive() is expected


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_other_streams_are_not_interactive(monkeypatch: pytest.MonkeyPatch, stream: object) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    assert not is_interactive()
    with progress_bar(None, {"capture"}) as bar:
        assert bar is None


def slow(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Shows bars at once on a terminal."""
    terminal = Terminal()
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr(module, "_DELAY_SECONDS", 1e-9)
    monkeypatch.setattr(module, "_SECONDS_BETWEEN_DRAWINGS", 0)
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


def test_ctrl_c_leaves_the_terminal_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = slow(monkeypatch)
    with pytest.raises(KeyboardInterrupt), progress_bar(None, {"capture"}) as bar:
        assert bar is not None
        bar.start("capture")
        bar.within(1, 2)
        raise KeyboardInterrupt
    text = terminal.getvalue()
    assert "capture  50%" in text
    assert text.endswith("\r")
    assert text.rsplit("\r", 2)[1].strip() == "", "the line is blank"


class End(Exception):
    pass


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, End])
@pytest.mark.parametrize("drawn", [1, 2, 3])
def test_a_bar_is_erased_after_a_real_delay(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException] | None, drawn: int
) -> None:
    """The next text begins in the first column of an empty line, however short the bar was seen."""
    terminal = slow(monkeypatch)
    monkeypatch.setattr(module, "_DELAY_SECONDS", 0.02)
    with suppress(KeyboardInterrupt, End), progress_bar(None, {"capture", "optimize"}) as bar:
        assert bar is not None
        time.sleep(0.03)
        for place in range(drawn):
            bar.start("optimize")
            bar.within(place, 4)
        if error is not None:
            raise error
    text = terminal.getvalue()
    assert "optimize" in text
    assert text.rsplit("\r", 2)[1].strip() == text.rsplit("\r", 2)[2] == "", "blanks, and the cursor at their start"
    pyte = pytest.importorskip("pyte", reason="pyte shows what a terminal makes of the characters")
    screen = pyte.Screen(100, 5)
    pyte.Stream(screen).feed(text + "done")
    assert screen.display[0].strip() == "done"
    assert not "".join(screen.display[1:]).strip()


def test_a_bar_that_never_appeared_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = slow(monkeypatch)
    monkeypatch.setattr(module, "_DELAY_SECONDS", 60)
    with progress_bar(None, {"capture"}) as bar:
        assert bar is not None
        bar.start("capture")
    assert terminal.getvalue() == ""


def test_an_export_is_silent_where_nobody_looks(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fx_onnx.stages")
    fx_onnx.export(torch.nn.Linear(2, 2).eval(), (torch.ones(1, 2),))
    assert capfd.readouterr() == ("", "")
    announced = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert announced[:2] == ["capture ...", "lower_vmap ..."]
    assert "optimize ..." in announced


def test_progress_false_hides_the_bar_of_a_save_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    terminal = slow(monkeypatch)
    monkeypatch.setattr(streaming, "PROGRESS_FROM_BYTES", 1)
    model, args = torch.nn.Linear(2, 2).eval(), (torch.ones(1, 2),)
    fx_onnx.export(model, args, tmp_path / "m.onnx", progress=False)
    assert terminal.getvalue() == ""
    fx_onnx.export(model, args).save(tmp_path / "m.onnx")
    assert "saving" in terminal.getvalue(), "the same save shows a bar where nothing hides it"


def test_progress_true_shows_the_bar_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(module, "_DELAY_SECONDS", 1e-9)
    monkeypatch.setattr(sys, "stderr", stream)
    fx_onnx.export(torch.nn.Linear(2, 2).eval(), (torch.ones(1, 2),), progress=True)
    assert "%" in stream.getvalue()
    with pytest.raises(fx_onnx.ArgumentError, match="progress"):
        fx_onnx.export(torch.nn.Linear(2, 2).eval(), (torch.ones(1, 2),), progress="yes")
