"""Gives symbolic numbers the types of plain numbers, as the user's code sees them.

While torch captures in non-strict mode, a dynamic size or integer is a SymInt, and a dynamic float is a SymFloat. Both
are not subclasses of ``int`` and ``float``, so a branch such as ``if isinstance(size, int)`` would differ from eager
mode. Strict mode answers as Python does.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import torch

from fx_onnx.capture.patches.patching import exchange_attribute
from fx_onnx.core.source_lines import is_library
from fx_onnx.core.threads import CAPTURE_LOCK, is_current

__all__ = ["answer_as_plain_numbers"]

_PLAIN_TYPES: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


@contextmanager
def answer_as_plain_numbers(model: torch.nn.Module) -> Iterator[None]:
    """Replaces ``isinstance`` and ``type`` within the context, in the current thread.

    A global variable of a module has precedence over a builtin function. So the replacements become global variables
    of the modules of users and of model libraries; torch and the standard library keep the builtin functions.

    For a symbolic float, ``number.__class__`` and ``match`` answer in the same way. For a symbolic size they do not,
    because torch reads attributes of sizes so often that a function for it would make the capture a fifth slower.

    Args:
        model: The module to capture. Its classes may be defined in namespaces that are no imported modules.
    """
    replacements = {"isinstance": _isinstance_in(get_ident()), "type": _type_in(get_ident())}
    changed: dict[str, list[dict[str, Any]]] = {name: [] for name in replacements}
    with CAPTURE_LOCK, exchange_attribute(torch.SymFloat, "__getattribute__", _getattribute_in(get_ident())):
        try:
            # There are thousands of namespaces, so no tuple is made for each: a garbage collection would start.
            for namespace in _namespaces(model):
                for name, replacement in replacements.items():
                    if name not in namespace:
                        namespace[name] = replacement
                        changed[name].append(namespace)
            yield
        finally:
            for name, namespaces in changed.items():
                for namespace in namespaces:
                    namespace.pop(name, None)


def _namespaces(model: torch.nn.Module) -> Iterator[dict[str, Any]]:
    """Yields the global variables of each module whose code sees symbolic numbers as plain numbers."""
    for name, module in list(sys.modules.items()):
        if not is_library(name) and isinstance(getattr(module, "__dict__", None), dict):
            yield vars(module)
    for kind in {type(each) for each in model.modules()}:
        if not is_library(kind.__module__):
            yield getattr(kind.forward, "__globals__", {})


def _isinstance_in(thread: int) -> Any:
    def isinstance(instance: Any, kind: Any) -> bool:
        """Replaces ``isinstance``: a symbolic number is also an instance of the class of the plain number."""
        if builtins.isinstance(instance, kind):
            return True
        plain = _PLAIN_TYPES.get(builtins.type(instance))
        return plain is not None and is_current(thread) and issubclass(plain, kind)

    return isinstance


def _getattribute_in(thread: int) -> Any:
    def __getattribute__(self: torch.SymFloat, name: str) -> Any:
        """Returns an attribute of a symbolic float; its class is ``float`` for the code that gets plain numbers."""
        if name == "__class__" and is_current(thread):
            caller = sys._getframe(1).f_globals.get("__name__", "")
            return builtins.type(self) if is_library(caller) else float
        return object.__getattribute__(self, name)

    return __getattribute__


def _type_in(thread: int) -> Any:
    class Metaclass(type):
        def __call__(cls, *args: Any, **options: Any) -> Any:
            """Returns the class of the plain number for a symbolic number, and what ``type`` returns for all else."""
            found = builtins.type(*args, **options)
            if found is builtins.type:  # so that `type(int) is type` stays true
                return cls
            return _PLAIN_TYPES.get(found, found) if len(args) == 1 and is_current(thread) else found

        def __instancecheck__(cls, instance: Any) -> bool:
            return builtins.isinstance(instance, builtins.type)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, builtins.type)

    return Metaclass("type", (type,), {})
