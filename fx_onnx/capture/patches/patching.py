"""Replaces attributes, functions and methods for a limited time, in all threads.

Exports may overlap in several threads: the first one installs a replacement, and the last one restores the original.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

__all__ = ["PatchTable", "apply_patches", "replace_attribute"]

PatchTable = Mapping[tuple[str, str], Callable[..., Any]]
"""Replacements by (module, name): the module that defines the function, and the function's name or `Class.method`."""

_ABSENT = object()
_lock = threading.Lock()
_active: dict[tuple[int, str], tuple[int, Any]] = {}  # (id of owner, name) → number of users, original value


@contextmanager
def replace_attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Sets ``owner.name`` to ``value`` within the context.

    The replacement is visible in all threads. If several contexts replace the same attribute at the same time, the
    first one to enter sets the value, and the last one to leave restores the original.
    """
    key = (id(owner), name)
    with _lock:
        users, original = _active.get(key, (0, vars(owner).get(name, _ABSENT)))
        if not users:
            setattr(owner, name, value)
        _active[key] = (users + 1, original)
    try:
        yield
    finally:
        with _lock:
            users, original = _active.pop(key)
            if users > 1:
                _active[key] = (users - 1, original)
            elif original is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


@contextmanager
def apply_patches(*tables: PatchTable) -> Iterator[None]:
    """Replaces the functions and methods of the tables within the context.

    A function is replaced in its own module and in every module that imported it under its name. Entries whose module
    has not been imported have no effect.
    """
    patches = {key: patch for table in tables for key, patch in table.items() if key[0] in sys.modules}
    modules = _modules_with({name for _, name in patches})
    with ExitStack() as stack:
        for (module, path), patch in patches.items():
            for owner, name in _owners(sys.modules[module], path, modules):
                stack.enter_context(replace_attribute(owner, name, patch))
        yield


def _owners(module: ModuleType, path: str, modules: Mapping[str, list[ModuleType]]) -> Iterator[tuple[Any, str]]:
    """Yields each (owner, attribute name) that refers to the function: one class, or every module that imported it."""
    owner, _, name = path.rpartition(".")
    if owner:
        yield getattr(module, owner), name
        return
    function = getattr(module, name)
    for each in modules[name]:
        if vars(each).get(name) is function:
            yield each, name


_module_cache: tuple[Any, dict[str, list[ModuleType]]] = (None, {})  # (state of sys.modules, modules by name)


def _modules_with(names: Set[str]) -> dict[str, list[ModuleType]]:
    """Returns, for each name, the modules that have an attribute of this name.

    There are thousands of modules, so the result is cached until an import, or a definition in ``__main__``.
    """
    global _module_cache  # noqa: PLW0603  a cache of one entry
    state = (frozenset(names), len(sys.modules), next(reversed(sys.modules)), len(vars(sys.modules["__main__"])))
    if _module_cache[0] != state:
        found: dict[str, list[ModuleType]] = {name: [] for name in names}
        for module in list(sys.modules.values()):
            for name in names & getattr(module, "__dict__", {}).keys():  # sys.modules may hold objects of any type
                found[name].append(module)
        _module_cache = state, found
    return _module_cache[1]
