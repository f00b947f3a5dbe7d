"""Functions of other libraries replaced, while a model is captured, by ones that compute the same for all sizes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

from fx_onnx.capture.export_flag import replaced

__all__ = ["Patches", "patches_applied"]

Patches = Mapping[tuple[str, str], Callable[..., Any]]
"""By the module that defines a function and its name there, `Class.method` for a method: what stands for it."""


@contextmanager
def patches_applied(*tables: Patches) -> Iterator[None]:
    """Puts stand-ins in the place of functions, wherever a module has them by their names, and of methods.

    Of a module that was not imported nothing is replaced.
    """
    patches = {key: each for table in tables for key, each in table.items() if key[0] in sys.modules}
    modules = _modules_having({name for _, name in patches})
    with ExitStack() as stack:
        for (module, path), stand_in in patches.items():
            for owner, name in _places(sys.modules[module], path, modules):
                stack.enter_context(replaced(owner, name, stand_in))
        yield


def _places(module: ModuleType, path: str, modules: Mapping[str, list[ModuleType]]) -> Iterator[tuple[Any, str]]:
    """Where a method is, or a function is by its name: (what has it, its name there)."""
    owner, _, name = path.rpartition(".")
    if owner:
        yield getattr(module, owner), name
        return
    function = getattr(module, name)
    for each in modules[name]:
        if vars(each).get(name) is function:
            yield each, name


_found: tuple[Any, dict[str, list[ModuleType]]] = (None, {})  # of which modules, and what was found in them


def _modules_having(names: Set[str]) -> dict[str, list[ModuleType]]:
    """The modules that have something by each of the names.

    There are thousands of them, so they are looked through again only after an import, or a definition in ``__main__``.
    """
    global _found
    state = (frozenset(names), len(sys.modules), next(reversed(sys.modules)), len(vars(sys.modules["__main__"])))
    if _found[0] != state:
        found: dict[str, list[ModuleType]] = {name: [] for name in names}
        for module in list(sys.modules.values()):
            for name in names & getattr(module, "__dict__", {}).keys():  # anything may stand in sys.modules
                found[name].append(module)
        _found = state, found
    return _found[1]
