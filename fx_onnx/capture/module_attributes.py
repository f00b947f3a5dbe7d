"""The annotated attributes of a module, which become attributes of its local function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

__all__ = ["annotated_attributes"]


def annotated_attributes(model: Any) -> Callable[[str], Mapping[str, Any]]:
    """Returns a function that returns the annotated attributes of the submodule at a path, by name.

    They are the variables that the module's classes annotate, such as ``in_features: int``, whose values are numbers,
    strings or lists of them. The annotations of ``nn.Module`` itself do not count. An ExportedProgram has no modules,
    so no attributes.
    """

    def attributes(path: str) -> Mapping[str, Any]:
        try:
            module = model.get_submodule(path)
        except AttributeError:  # an ExportedProgram, or a module that a decomposition or a library made
            return {}
        classes = [cls for cls in type(module).__mro__ if cls not in torch.nn.Module.__mro__]
        names = dict.fromkeys(name for cls in reversed(classes) for name in vars(cls).get("__annotations__", {}))
        own = [name for name in names if name not in torch.nn.Module.__annotations__]
        values = {name: getattr(module, name, None) for name in own}
        return {name: _plain(value) for name, value in values.items() if _is_attribute(value)}

    return attributes


def _is_attribute(value: Any) -> bool:
    """Returns whether an ONNX attribute can hold the value; an empty list has no type."""
    if isinstance(value, (list, tuple)):
        kinds = {type(item) for item in value}
        return (kinds <= {int, bool, float} and bool(kinds)) or kinds == {str}
    return isinstance(value, (bool, int, float, str))


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, (list, tuple)):
        items = [_plain(item) for item in value]
        return list(map(float, items)) if any(isinstance(item, float) for item in items) else items
    return value
