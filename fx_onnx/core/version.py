"""The version of the installed package, which every exported model names as its ``producer_version``."""

from __future__ import annotations

import functools
import importlib.metadata

__all__ = ["version"]


@functools.cache
def version() -> str:
    """Returns the version that the installed distribution declares, for example ``0.1.0``."""
    return importlib.metadata.version("fx-onnx")
