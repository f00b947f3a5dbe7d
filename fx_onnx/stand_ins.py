"""Functions of other libraries replaced, while a model is captured, by ones that compute the same for all sizes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

from fx_onnx.exporting import replaced

__all__ = ["standing_in"]


@contextmanager
def standing_in(stand_ins: Mapping[tuple[str, str], Callable[..., Any]]) -> Iterator[None]:
    """Puts stand-ins in the place of functions, wherever a module has them by their names, and of methods.

    Args:
        stand_ins: by the module that defines the function and its name there, `Class.method` for a method. Of a module
            that was not imported nothing is replaced.
    """
    with ExitStack() as stack:
        for (module, path), stand_in in stand_ins.items():
            if module in sys.modules:
                for owner, name in _places(sys.modules[module], path):
                    stack.enter_context(replaced(owner, name, stand_in))
        yield


def _places(module: ModuleType, path: str) -> Iterator[tuple[Any, str]]:
    """Where a method is, or a function is by its name: (what has it, its name there)."""
    owner, _, name = path.rpartition(".")
    if owner:
        yield getattr(module, owner), name
        return
    function = getattr(module, name)
    for each in list(sys.modules.values()):
        if getattr(each, "__dict__", {}).get(name) is function:
            yield each, name
