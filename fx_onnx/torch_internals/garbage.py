"""Suspension of Python's garbage collection while many objects are made that all stay in use."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["no_collection"]


@contextmanager
def no_collection() -> Iterator[None]:
    """Disables garbage collection in a block or in a decorated function.

    A full collection visits all objects of the captured program and of the model. This takes longer than most stages.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
