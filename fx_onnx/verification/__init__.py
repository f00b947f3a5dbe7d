"""Compares programs with their modules: both sides run, at other sizes too, and the cause of a difference is found.

``verify.py`` puts the parts together. The names of ``torch.onnx.verification`` are attributes of this package.
"""

from typing import Any

from fx_onnx.extension_points.rooms import TABLE, find

__all__ = list(TABLE[__name__])


def __getattr__(name: str) -> Any:
    """Imports a name of torch.onnx.verification on first use."""
    if name not in TABLE[__name__]:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return find(__name__, name)
