"""Replaces functions and methods for a limited time, in one thread.

The attribute of the module or the class is replaced by a dispatcher. It calls the replacement in the thread that
installed it, and the original in all other threads, so a thread that runs a model at the same time is not affected.
"""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from fx_onnx.core import threads
from fx_onnx.core.source_lines import is_library
from fx_onnx.core.threads import CAPTURE_LOCK, in_this_thread

__all__ = ["FILES_BETWEEN", "InOtherThreads", "PatchTable", "apply_patches", "exchange_attribute", "replace_attribute"]


class InOtherThreads(NamedTuple):
    """A function that replaces another one in all threads but the one that installs it."""

    function: Callable[..., Any]


PatchTable = Mapping[tuple[str, str], Callable[..., Any] | InOtherThreads]
"""Replacements by (module, name): the module that defines the function, and the function's name or `Class.method`."""

FILES_BETWEEN = frozenset({*map(str, Path(__file__).parent.glob("*.py")), str(threads.__file__)})
"""The files of the replacements, whose frames are between the forward and torch."""

_ABSENT = object()


@contextmanager
def replace_attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replaces the function ``owner.name`` by ``value`` within the context, in the current thread.

    Other threads call the original function: the one in ``vars(owner)``, or the one that ``owner`` inherits. Only one
    thread at a time can replace attributes. Another thread waits until the first one has restored its attributes.

    Args:
        owner: A module, a class, or an object with a ``__dict__``.
        name: The name of a function or method. ``owner`` need not have it; then other threads get a TypeError.
        value: The replacement. If the original is a classmethod or a staticmethod, so is the replacement.
    """
    kind = type(value) if isinstance(value, (classmethod, staticmethod)) else None
    dispatcher = in_this_thread(value.__func__ if kind else value, _original(owner, name))
    with exchange_attribute(owner, name, kind(dispatcher) if kind else dispatcher):
        yield


@contextmanager
def exchange_attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Sets ``owner.name`` to ``value`` within the context, as all threads see it; then restores the same object."""
    with CAPTURE_LOCK:
        original = vars(owner).get(name, _ABSENT)
        _set(owner, name, value)
        try:
            yield
        finally:
            _set(owner, name, original)


def _set(owner: Any, name: str, value: Any) -> None:
    """Sets or removes an attribute, without the ``__setattr__`` of an object's class, because it may do more."""
    if isinstance(owner, type):
        if value is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, value)
    elif value is _ABSENT:
        del vars(owner)[name]
    else:
        vars(owner)[name] = value


def _original(owner: Any, name: str) -> Callable[..., Any]:
    """Returns the function that other threads call, in the form in which a dispatcher in its place can call it."""
    if isinstance(owner, type):
        found = inspect.getattr_static(owner, name, _not_implemented)
        return found.__func__ if isinstance(found, (classmethod, staticmethod)) else found
    default = getattr(builtins, name, _not_implemented) if isinstance(owner, ModuleType) else _not_implemented
    original: Callable[..., Any] = getattr(owner, name, default)
    return original


def _not_implemented(*_: Any, **__: Any) -> Any:
    """Replaces an operator such as ``__divmod__`` that a class does not have: Python then raises a TypeError."""
    return NotImplemented


@contextmanager
def apply_patches(*tables: PatchTable) -> Iterator[None]:
    """Replaces the functions and methods of the tables within the context.

    A function is replaced in its own module and in every module that imported it, under another name too. Entries whose
    module has not been imported have no effect.
    """
    patches = {key: patch for table in tables for key, patch in table.items() if key[0] in sys.modules}
    functions = {id(getattr(sys.modules[module], name)) for module, name in patches if "." not in name}
    places = _places_of(frozenset(functions))
    with ExitStack() as stack:
        for (module, path), patch in patches.items():
            for owner, name in _owners(sys.modules[module], path, places):
                if isinstance(patch, InOtherThreads):
                    dispatcher = in_this_thread(getattr(owner, name), patch.function)
                    stack.enter_context(exchange_attribute(owner, name, dispatcher))
                else:
                    stack.enter_context(replace_attribute(owner, name, patch))
        yield


_Places = dict[int, list[tuple[ModuleType, str]]]


def _owners(module: ModuleType, path: str, places: _Places) -> Iterator[tuple[Any, str]]:
    """Yields each (owner, attribute name) that refers to the function: one class, or every module that imported it."""
    owner, _, name = path.rpartition(".")
    if owner:
        yield getattr(module, owner), name
        return
    function = getattr(module, name)
    for each, alias in places[id(function)]:
        is_same_name = alias == name or not is_library(each.__name__)  # torch and fx_onnx keep originals as aliases
        if is_same_name and vars(each).get(alias) is function:
            yield each, alias


_places_cache: tuple[Any, _Places] = (None, {})  # (state of sys.modules, places by the id of a function)


def _places_of(functions: Set[int]) -> _Places:
    """Returns the modules and the names under which they have each function, by its id.

    There are thousands of modules, so the result is cached until an import, or a definition in ``__main__``.
    """
    global _places_cache  # noqa: PLW0603  a cache of one entry
    state = (functions, len(sys.modules), next(reversed(sys.modules)), len(vars(sys.modules["__main__"])))
    if _places_cache[0] != state:
        found: _Places = {function: [] for function in functions}
        for module in list(sys.modules.values()):
            variables = getattr(module, "__dict__", {})  # sys.modules may hold objects of any type
            if not functions.isdisjoint(map(id, variables.values())):
                for name, value in variables.items():
                    if id(value) in functions:
                        found[id(value)].append((module, name))
        _places_cache = state, found
    return _places_cache[1]
