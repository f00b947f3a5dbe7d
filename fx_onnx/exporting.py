"""Whether an export is under way, which a forward may ask; the package's only state, and of one context only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["exporting", "is_in_onnx_export"]

_exporting: ContextVar[bool] = ContextVar("fx_onnx_exporting", default=False)


def is_in_onnx_export() -> bool:
    """True while fx_onnx traces a model, so that a forward can take another way then."""
    return _exporting.get()


@contextmanager
def exporting() -> Iterator[None]:
    """Within it, a model is being traced."""
    token = _exporting.set(True)
    try:
        yield
    finally:
        _exporting.reset(token)
