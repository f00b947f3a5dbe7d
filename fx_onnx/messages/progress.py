"""How far the current stage of an export is. A stage reports it; ``program/progress_bar.py`` shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

__all__ = [
    "hide_progress",
    "hides_progress",
    "progress_of_part",
    "progress_to",
    "report_progress",
    "running_part",
    "shows_progress",
]

# Receives (done, total). Each thread has a context of its own, so exports in other threads do not share it.
_receiver: ContextVar[Callable[[int, int], None] | None] = ContextVar("fx_onnx_progress", default=None)

_part: ContextVar[str] = ContextVar("fx_onnx_part", default="")


def report_progress(done: int, total: int) -> None:
    """Reports that ``done`` of ``total`` steps of the current stage are done; does nothing if nobody is shown it."""
    receive = _receiver.get()
    if receive is not None:
        receive(done, total)


def shows_progress() -> bool:
    """Returns whether somebody is shown the progress, so that a stage need not count for nobody."""
    return _receiver.get() not in (None, _ignore)


def hides_progress() -> bool:
    """Returns whether the export is one that was asked to show no progress, so that no stage shows a bar of its own."""
    return _receiver.get() is _ignore


@contextmanager
def progress_to(receive: Callable[[int, int], None]) -> Iterator[None]:
    """Passes the progress of the stages to ``receive`` within the context."""
    token = _receiver.set(receive)
    try:
        yield
    finally:
        _receiver.reset(token)


@contextmanager
def progress_of_part(name: str) -> Iterator[None]:
    """Names what the exports within the context are part of, such as ``vae_decoder (2 of 5)``."""
    token = _part.set(name)
    try:
        yield
    finally:
        _part.reset(token)


def running_part() -> str:
    """Returns what the export is part of, or an empty text."""
    return _part.get()


def hide_progress() -> AbstractContextManager[None]:
    """Lets no stage show progress within the context."""
    return progress_to(_ignore)


def _ignore(done: int, total: int) -> None:
    pass
