"""The arguments of ``export`` that a ``torch.onnx.ExportableModule`` holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def with_own_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of ``export``, completed by those of an ``ExportableModule``.

    The module's example arguments, dynamic shapes and names are used if the call gives no example arguments, as in
    torch.onnx. Dynamic shapes or names that the call gives have precedence.
    """
    model, found = given["model"], dict(given)
    is_empty = isinstance(given["args"], (tuple, list)) and not given["args"]
    if not isinstance(model, torch.onnx.ExportableModule) or not is_empty or given["kwargs"]:
        return found
    found["args"], found["kwargs"] = model.example_arguments()
    for name in ("input_names", "output_names"):
        if found[name] is None:
            found[name] = getattr(model, name)()
    if found["dynamic_shapes"] is None and not found["dynamic_axes"]:
        found["dynamic_shapes"] = model.dynamic_shapes()
    return found
