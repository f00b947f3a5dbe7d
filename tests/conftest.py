"""Leaves out what is no part of a test and takes time: Python's garbage collector and torch's trace."""

from __future__ import annotations

import gc
import logging

import pytest


def pytest_collection() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    """Leaves out all that is imported and collected, which stays until the end, and waits for more garbage.

    pytest adds its handlers to each logger that does not propagate. torch's trace is one, and as long as it has a
    handler, torch formats the stack, here a hundred frames, for each tensor and each size that it traces.
    """
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()
    logging.getLogger("torch.__trace").propagate = True


@pytest.fixture
def own_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves torch's own functions in place of the faster ones of the room ``faster_tracing``."""
    monkeypatch.setenv("FX_ONNX_FASTER_TRACING", "0")
