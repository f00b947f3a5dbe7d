"""Whether an export is under way, which a forward may ask; the package's only state, and of one context only."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from fx_onnx.core.torch_private import onnx_export_flag

__all__ = ["exporting", "is_in_onnx_export", "replaced"]

_exporting: ContextVar[bool] = ContextVar("fx_onnx_exporting", default=False)


def is_in_onnx_export() -> bool:
    """True while fx_onnx traces a model, so that a forward can take another way then."""
    return _exporting.get()


@contextmanager
def exporting() -> Iterator[None]:
    """Within it, a model is being traced; ``torch.onnx.is_in_onnx_export()``, which models ask too, says so as well."""
    token = _exporting.set(True)
    try:
        flag = onnx_export_flag()
        with nullcontext() if flag is None else replaced(*flag, True):
            yield
    finally:
        _exporting.reset(token)


_ABSENT = object()
_lock = threading.Lock()
_replaced: dict[tuple[int, str], tuple[int, Any]] = {}  # how often, and what was there


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """``owner.name`` is ``value`` within it, in all threads: the first sets it, the last puts back what was."""
    key = (id(owner), name)
    with _lock:
        count, before = _replaced.get(key, (0, vars(owner).get(name, _ABSENT)))
        if not count:
            setattr(owner, name, value)
        _replaced[key] = (count + 1, before)
    try:
        yield
    finally:
        with _lock:
            count, before = _replaced.pop(key)
            if count > 1:
                _replaced[key] = (count - 1, before)
            elif before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
