"""The lock that lets one thread capture at a time, and replacements of functions that act in one thread only.

torch's capture changes state of the whole process and is not thread-safe. fx_onnx and torch also replace functions
while they capture. The other threads of a server must not notice that.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from threading import get_ident
from typing import Any

__all__ = [
    "CAPTURE_LOCK",
    "attribute_of_thread",
    "hook_in_this_thread",
    "in_this_thread",
    "is_current",
    "restore_items",
]

CAPTURE_LOCK = threading.RLock()
"""Held while torch captures or traces a whole graph, and while anything in torch or in a library is replaced."""


_NO_THREAD = 0


def is_current(thread: int) -> bool:
    """Returns whether ``thread``, a number of ``threading.get_ident``, is the thread that calls."""
    return get_ident() == thread


def in_this_thread(replacement: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that calls ``replacement`` in the current thread, and ``original`` in all other threads.

    The function has the name and the signature of the replacement. After a call of its ``end``, it calls ``original``
    in all threads: another thread may have kept it, as ``warnings.catch_warnings`` does. It has the other one as
    ``original``.
    """
    thread = get_ident()

    @functools.wraps(replacement)
    def dispatcher(*args: Any, **kwargs: Any) -> Any:
        if is_current(thread):
            return replacement(*args, **kwargs)
        return original(*args, **kwargs)

    def end() -> None:
        nonlocal thread
        thread = _NO_THREAD

    vars(dispatcher).update(end=end, original=original)
    return dispatcher


def hook_in_this_thread(hook: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a hook for a module that does nothing in other threads, which may run the module too."""
    return in_this_thread(hook, lambda *_: None)


def attribute_of_thread(name: str, get: Callable[[Any], Any], set: Callable[[Any, Any], None]) -> property:
    """Returns a property for the attribute ``name`` of objects, which the current thread gets and sets its own way.

    All other threads read and write the ``__dict__`` of the object, as without the property.
    """
    thread = get_ident()

    def read(owner: Any) -> Any:
        try:
            return get(owner) if is_current(thread) else vars(owner)[name]
        except KeyError:
            raise AttributeError(name) from None  # Python calls __getattr__

    def write(owner: Any, value: Any) -> None:
        if is_current(thread):
            set(owner, value)
        else:
            vars(owner)[name] = value

    return property(read, write)


def restore_items(items: dict[Any, Any], before: Mapping[Any, Any]) -> None:
    """Gives a dict the items that it had before. What is equal stays in place: another thread may read it meanwhile."""
    for key in items.keys() - before.keys():
        items.pop(key, None)
    for key, value in before.items():
        if items.get(key, items) is not value:
            items[key] = value
    if list(items) != list(before):  # the order
        for key, value in before.items():
            items.pop(key, None)
            items[key] = value
