"""Lets Python's garbage collector visit fewer objects: it took a tenth of the time of the tests."""

from __future__ import annotations

import gc


def pytest_collection() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    """Leaves out all that is imported and collected, which stays until the end, and waits for more garbage."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()
