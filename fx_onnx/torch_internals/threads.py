"""The lock that lets one thread capture at a time, and replacements of functions that act in one thread only.

torch's capture changes state of the whole process and is not thread-safe. fx_onnx and torch also replace functions
while they capture. The other threads of a server must not notice that.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from threading import get_ident
from typing import Any

__all__ = ["CAPTURE_LOCK", "in_this_thread", "is_current"]

CAPTURE_LOCK = threading.RLock()
"""Held while torch captures or traces a whole graph, and while anything in torch or in a library is replaced."""


def is_current(thread: int) -> bool:
    """Returns whether ``thread``, a number of ``threading.get_ident``, is the thread that calls."""
    return get_ident() == thread


def in_this_thread(replacement: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that calls ``replacement`` in the current thread, and ``original`` in all other threads.

    The function has the name and the signature of the replacement.
    """
    thread = get_ident()

    @functools.wraps(replacement)
    def dispatcher(*args: Any, **kwargs: Any) -> Any:
        if is_current(thread):
            return replacement(*args, **kwargs)
        return original(*args, **kwargs)

    return dispatcher
