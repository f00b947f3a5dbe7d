"""The annotated attributes of a module, which become attributes of its local function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

__all__ = ["annotated_attributes"]


def annotated_attributes(model: Any, path: str) -> Mapping[str, Any]:
    """Returns the annotated attributes of the submodule at a path, by name.

    They are the variables that the module's classes annotate, such as ``in_features: int``, whose values are numbers,
    strings or lists of them. The annotations of ``nn.Module`` itself do not count. An ExportedProgram has no modules,
    so no attributes.
    """
    try:
        module = model.get_submodule(path)
    except AttributeError:  # an ExportedProgram, or a module that a decomposition or a library made
        return {}
    classes = [cls for cls in type(module).__mro__ if cls not in nn.Module.__mro__]
    names = dict.fromkeys(name for cls in reversed(classes) for name in vars(cls).get("__annotations__", {}))
    values = ((name, _plain(getattr(module, name, None))) for name in names)
    return {name: value for name, value in values if value is not None and name not in nn.Module.__annotations__}


def _plain(value: Any) -> Any:
    """Returns the value in the form that an ONNX attribute holds; None if none does, as an empty list has no type."""
    if isinstance(value, (list, tuple)):
        kinds = {type(item) for item in value}
        if kinds == {str}:
            return list(value)
        number = float if float in kinds else int
        return [number(item) for item in value] if kinds and kinds <= {int, bool, float} else None
    if isinstance(value, (int, float, str)):
        return int(value) if isinstance(value, bool) else value
    return None
