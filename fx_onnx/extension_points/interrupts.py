"""Ctrl-C waits while a module is imported, because Python cannot repeat an import of torch that ended in the middle."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["interrupts_after_imports"]


@contextmanager
def interrupts_after_imports() -> Iterator[None]:
    """Delays an interrupt that arrives within the context during an import until no import runs.

    Only the main thread handles signals. Imports around the context, such as that of a script that exports, are not
    waited for.
    """
    before = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if not callable(before):
        yield
        return
    caller = sys._getframe(2)

    def handle(number: int, frame: FrameType | None) -> None:
        inner = frame
        while inner is not None and inner is not caller:
            if inner.f_code.co_filename.startswith("<frozen importlib"):
                again = threading.Timer(0.02, _thread.interrupt_main)
                again.daemon = True
                again.start()
                return
            inner = inner.f_back
        before(number, frame)

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is handle:
            signal.signal(signal.SIGINT, before)
