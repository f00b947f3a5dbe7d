"""The flag that tells a model's forward whether it is being exported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.core.torch_private import onnx_export_flag

__all__ = ["exporting", "is_in_onnx_export"]

_exporting: ContextVar[bool] = ContextVar("fx_onnx_exporting", default=False)


def is_in_onnx_export() -> bool:
    """Returns whether fx_onnx is tracing a model in the current context, so that a forward can act differently then."""
    return _exporting.get()


@contextmanager
def exporting() -> Iterator[None]:
    """Sets the flag while a model is traced, and also the flag behind ``torch.onnx.is_in_onnx_export()``.

    Models of other libraries ask torch.onnx. Its flag is global, so other threads see it too.
    """
    token = _exporting.set(True)
    try:
        flag = onnx_export_flag()
        with nullcontext() if flag is None else replace_attribute(*flag, True):
            yield
    finally:
        _exporting.reset(token)
