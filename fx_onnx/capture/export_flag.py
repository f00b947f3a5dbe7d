"""The flag that tells a model's forward whether it is being exported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from fx_onnx.capture.patches.patching import Patch

__all__ = ["PATCHES", "exporting", "is_in_onnx_export"]

_exporting: ContextVar[bool] = ContextVar("fx_onnx_exporting", default=False)


def is_in_onnx_export() -> bool:
    """Returns whether fx_onnx is tracing a model in the current context, so that a forward can act differently then."""
    return _exporting.get()


@contextmanager
def exporting() -> Iterator[None]:
    """Sets the flag while a model is traced."""
    token = _exporting.set(True)
    try:
        yield
    finally:
        _exporting.reset(token)


PATCHES = (
    Patch(
        "torch.onnx:is_in_onnx_export",
        lambda: True,
        "The models of other libraries ask torch.onnx whether they are being exported.",
    ),
)
"""The flag of torch.onnx, which nothing else sets."""
