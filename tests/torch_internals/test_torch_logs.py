"""torch's log lines do not reach the user's output, in the exporting thread and only there."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest
import torch

import fx_onnx
from fx_onnx.torch_internals.torch_logs import redirect_torch_logs

TORCH = logging.getLogger("torch.fx.experimental.symbolic_shapes")


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """The lines that a handler of torch shows."""
    shown: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: shown.append(record.getMessage())  # type: ignore[method-assign]
    TORCH.addHandler(handler)
    yield shown
    TORCH.removeHandler(handler)


def test_lines_are_redirected_in_this_thread_only(lines: list[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fx_onnx.torch")
    filters = [list(handler.filters) for handler in TORCH.handlers]
    with redirect_torch_logs():
        TORCH.warning("a dump")
        assert lines == []
        thread = threading.Thread(target=TORCH.warning, args=("of another thread",))
        thread.start()
        thread.join()
    TORCH.warning("afterwards")
    assert lines == ["of another thread", "afterwards"]
    assert filters == [list(handler.filters) for handler in TORCH.handlers]
    (record,) = [each for each in caplog.records if each.name == "fx_onnx.torch"]
    assert record.getMessage() == f"{TORCH.name}: a dump"


def test_a_user_who_asks_for_the_logs_gets_them(lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOGS", "dynamic")
    with redirect_torch_logs():
        TORCH.warning("a dump")
    assert lines == ["a dump"]


def test_the_handler_of_a_trace_to_no_file_removes_itself() -> None:
    """Tests that the records of TORCH_TRACE are not redirected: torch formats stacks for as long as a handler stays."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logging.getLogger(record.name).removeHandler(self)

    trace, handler = logging.getLogger("torch.__trace"), Handler()
    trace.addHandler(handler)
    fx_onnx.export(torch.nn.Identity(), (torch.ones(2),), verbose=False)
    assert handler not in trace.handlers
