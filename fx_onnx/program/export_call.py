"""The call of ``export()`` as text, for the reports."""

from __future__ import annotations

import enum
import os
import reprlib
from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["export_call"]

_MOST_ITEMS = 24
_MOST_CHARACTERS = 120


def export_call(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Returns the call with the arguments that were given, one a line; tensors are shown by dtype and shape.

    Args:
        given: parameter → argument; the first ones are positional.
        defaults: parameter → default. An argument that equals its default is left out.
    """
    lines = []
    for name, value in given.items():
        if name in ("model", "args"):
            if name == "model" or not (isinstance(value, tuple) and not value):
                lines.append(_text(value))
        elif name == "f":
            lines += [] if value is None else [f"f={_text(value)}"]
        elif name in defaults and value is not defaults[name]:
            lines.append(f"{name}={_text(value)}")
    return "fx_onnx.export(\n" + "".join(f"    {line},\n" for line in lines) + ")"


def _text(value: Any) -> str:
    """Returns an argument as it might be written, without running code of the user's classes."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    if type(value) in (tuple, list, set, frozenset, dict):
        return _container(value)
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, (str, os.PathLike)):
        return repr(os.fspath(value)[:_MOST_CHARACTERS])
    if value is None or isinstance(value, (bool, int, float, bytes, complex)):
        return reprlib.repr(value)
    return str(value.__qualname__) if hasattr(value, "__qualname__") else f"{type(value).__name__}(...)"


def _container(value: Any) -> str:
    if type(value) is dict:
        items = [f"{_text(key)}: {_text(each)}" for key, each in list(value.items())[:_MOST_ITEMS]]
    else:
        items = [_text(each) for each in list(value)[:_MOST_ITEMS]]
    text = ", ".join([*items, "..."] if len(value) > _MOST_ITEMS else items)
    if type(value) is tuple:
        return f"({text}{',' if len(value) == 1 else ''})"
    return f"[{text}]" if type(value) is list else f"{{{text}}}"
