"""One call of ``export()``: its arguments by parameter, those of an ExportableModule, and the call as text."""

from __future__ import annotations

import enum
import os
import reprlib
from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["call_text", "given_arguments", "with_own_examples"]

_MOST_ITEMS = 24
_MOST_CHARACTERS = 120


def given_arguments(arguments: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments that are not the defaults, by parameter."""
    return {name: arguments[name] for name, default in defaults.items() if arguments[name] is not default}


def with_own_examples(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the arguments, completed by those that a ``torch.onnx.ExportableModule`` holds.

    The module's example arguments, dynamic shapes and names are used if the call gives no example arguments, as in
    torch.onnx. Dynamic shapes or names that the call gives have precedence.
    """
    model, args = arguments["model"], arguments["args"]
    is_empty = isinstance(args, (tuple, list)) and not args
    if not isinstance(model, torch.onnx.ExportableModule) or not is_empty or arguments["kwargs"]:
        return arguments
    args, kwargs = model.example_arguments()
    own = {"input_names": model.input_names, "output_names": model.output_names}
    if not arguments["dynamic_axes"]:
        own["dynamic_shapes"] = model.dynamic_shapes
    missing = {name: of_model() for name, of_model in own.items() if arguments[name] is None}
    return {**arguments, "args": args, "kwargs": kwargs, **missing}


def call_text(arguments: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Returns the call with the arguments that were given, one a line; tensors are shown by dtype and shape."""
    given = given_arguments(arguments, defaults)
    positional = [given.pop(name) for name in ("model", "args") if name in given]
    lines = [*map(_text, positional), *(f"{name}={_text(value)}" for name, value in given.items())]
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
        items = [f"{_text(key)}: {_text(item)}" for key, item in list(value.items())[:_MOST_ITEMS]]
    else:
        items = [_text(item) for item in list(value)[:_MOST_ITEMS]]
    text = ", ".join([*items, "..."] if len(value) > _MOST_ITEMS else items)
    if type(value) is tuple:
        return f"({text}{',' if len(value) == 1 else ''})"
    return f"[{text}]" if type(value) is list else f"{{{text}}}"
