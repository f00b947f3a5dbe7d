"""An interrupt during an import is delivered after it."""

from __future__ import annotations

import importlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fx_onnx.extension_points.interrupts import interrupts_after_imports

INTERRUPTED = "import signal\nsignal.raise_signal(signal.SIGINT)\nEND = 1\n"


@pytest.fixture(autouse=True)
def _interrupts_raise() -> Iterator[None]:
    """A job in the background of a shell ignores interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "interrupted_inside.py").write_text(INTERRUPTED)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("interrupted_inside", None)
    return "interrupted_inside"


@pytest.mark.parametrize("nested", [False, True])
def test_an_interrupt_waits_for_the_end_of_the_import(module: str, nested: bool) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), interrupts_after_imports():
        if nested:
            with interrupts_after_imports():
                importlib.import_module(module)
        else:
            importlib.import_module(module)
        for _ in range(500):
            time.sleep(0.02)
    assert sys.modules[module].END == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_without_the_context_the_import_ends_in_the_middle(module: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        importlib.import_module(module)
    assert module not in sys.modules


def test_an_interrupt_outside_of_an_import_is_not_delayed() -> None:
    with pytest.raises(KeyboardInterrupt), interrupts_after_imports():
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the interrupt is late")


def test_other_handlers_and_threads_stay() -> None:
    seen: list[object] = []
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_after_imports():
            seen.append(signal.getsignal(signal.SIGINT))
    finally:
        signal.signal(signal.SIGINT, before)

    def in_a_thread() -> None:
        with interrupts_after_imports():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_IGN, before]
