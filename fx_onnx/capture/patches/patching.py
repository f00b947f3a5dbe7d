"""Replaces functions and methods for a limited time, in one thread.

The attribute of the module or the class is replaced by a dispatcher. It calls the replacement in the thread that
installed it, and the original in all other threads, so a thread that runs a model at the same time is not affected.
"""

from __future__ import annotations

import builtins
import inspect
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache, partial, reduce, wraps
from importlib import import_module, metadata
from types import MethodType, ModuleType
from typing import Any, NamedTuple

from torch import nn
from torch.torch_version import TorchVersion

from fx_onnx.messages.source_lines import is_library
from fx_onnx.torch_internals.threads import CAPTURE_LOCK, in_this_thread

__all__ = [
    "KEPT_MARK",
    "Added",
    "Around",
    "InAllThreads",
    "InOtherThreads",
    "Patch",
    "Way",
    "apply_patches",
    "exchange_attribute",
    "replace_attribute",
]

_logger = logging.getLogger("fx_onnx.patches")


class Way(NamedTuple):
    """How to replace an attribute.

    Attributes:
        replace: Takes the owner and the name; returns the context in which the attribute is replaced.
        is_new: Whether the owner does not have the attribute.
        make: Takes the original and returns its replacement, if it is made so.
    """

    replace: Callable[[Any, str], AbstractContextManager[None]]
    is_new: bool = False
    make: Callable[[Any], Any] | None = None


def Around(make: Callable[[Any], Any]) -> Way:
    """Returns how to replace an attribute by what a function makes of the original, in the current thread."""
    return Way(lambda owner, name: replace_attribute(owner, name, make(getattr(owner, name))), make=make)


def InAllThreads(make: Callable[[Any], Any]) -> Way:
    """Returns the same as ``Around`` for a replacement that all threads see; it leaves other threads alone itself."""
    return Way(lambda owner, name: exchange_attribute(owner, name, make(getattr(owner, name))))


def InOtherThreads(function: Callable[..., Any]) -> Way:
    """Returns how to replace a function by another one in all threads but the one that installs it."""
    return Way(lambda owner, name: exchange_attribute(owner, name, in_this_thread(getattr(owner, name), function)))


def Added(function: Callable[..., Any]) -> Way:
    """Returns how to add a function that a class of the library does not have."""
    return Way(lambda owner, name: replace_attribute(owner, name, function), is_new=True)


class Patch(NamedTuple):
    """A replacement of an attribute of torch, Python or a library while a model is traced.

    Attributes:
        target: `module:name` or `module:Class.name`. A module of torch is imported; one of a library is replaced only
            if the model's code has imported it. A function is also replaced in the modules of models that imported it.
        replacement: The function that replaces the original, or how to make it.
        reason: What goes wrong without it.
        upstream: The issue of torch or the library, if there is one.
        versions: The versions of the library that need it, such as `transformers>=5` or `torch<2.13`; empty for all.
        strict: Whether it applies in strict mode only, or in non-strict mode only; None for both. Strict mode traces
            the bytecode of replacements too.
        layer: The class of modules for which it is needed; None for all models.
        in_torch: Whether the modules of torch that imported the function get the replacement too.
    """

    target: str
    replacement: Callable[..., Any] | Way
    reason: str
    upstream: str | None = None
    versions: str = ""
    strict: bool | None = None
    layer: type[nn.Module] | None = None
    in_torch: bool = False

    @property
    def module(self) -> ModuleType | None:
        """The module of the target; None if the model's code has not imported it, or in other versions."""
        name = self.target.partition(":")[0]
        if not _is_installed(self.versions):
            return None
        return import_module(name) if name.partition(".")[0] in _OWN else sys.modules.get(name)

    @property
    def attribute(self) -> tuple[Any, str] | None:
        """The module or the class that has the attribute, and its name; None if it is gone."""
        *owners, name = self.target.partition(":")[2].split(".")
        owner = reduce(lambda parent, part: getattr(parent, part, None), owners, self.module)
        is_new = owner is not None and isinstance(self.replacement, Way) and self.replacement.is_new
        return (owner, name) if hasattr(owner, name) or is_new else None

    def find(self) -> tuple[Any, str] | None:
        """Returns the attribute; None, with a log, if it is gone."""
        if (attribute := self.attribute) is None:
            _logger.warning("%s does not exist, so nothing replaces it: %s", self.target, self.reason)
        return attribute

    def replacement_of(self, original: Any) -> Any:
        """Returns what replaces a function; the function itself in versions of the library that have another one."""
        made = self.replacement
        if self.module is None:
            return original
        return made.make(original) if isinstance(made, Way) and made.make is not None else made


KEPT_MARK = "kept_by_user"
"""The attribute of a replacement that the user asked for, so that no patch of the table replaces it."""

_ABSENT = object()
_OWN = frozenset({"torch", "builtins", "math"})


@cache
def _is_installed(versions: str) -> bool:
    """Returns whether a library is installed in versions such as `transformers>=5` or `torch<2.13`."""
    library, sign, bound = versions.partition("<" if "<" in versions else ">=")
    try:
        return not versions or (TorchVersion(metadata.version(library)) >= bound) == (sign == ">=")
    except metadata.PackageNotFoundError:
        return False


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
    kind: Any = type(value) if isinstance(value, (classmethod, staticmethod)) else None
    function, original = value.__func__ if kind else value, _original(owner, name)
    if getattr(original, "__self__", None) is owner and isinstance(original, MethodType):
        kind, function, original = partial(_method, owner, name), _with_self(function), original.__func__
    dispatcher = in_this_thread(function, original)
    try:
        with exchange_attribute(owner, name, kind(dispatcher) if kind else dispatcher):
            yield
    finally:
        vars(dispatcher)["end"]()


def _with_self(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that takes the object of a method first, and ignores it."""

    @wraps(function)
    def with_self(_: Any, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    signature = inspect.signature(function)
    self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    vars(with_self)["__signature__"] = signature.replace(parameters=[self, *signature.parameters.values()])
    return with_self


def _method(owner: Any, name: str, dispatcher: Any) -> MethodType:
    """Returns a method of an object, of which a copy that another thread makes is a method of the copied object."""
    dispatcher.__name__ = name  # by which pickle finds it
    return MethodType(dispatcher, owner)


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
    base = type if isinstance(owner, type) else object
    if value is _ABSENT:
        base.__delattr__(owner, name)
    else:
        base.__setattr__(owner, name, value)


def _original(owner: Any, name: str) -> Callable[..., Any]:
    """Returns the function that other threads call, in the form in which a dispatcher in its place can call it."""
    if isinstance(owner, type):
        attribute = inspect.getattr_static(owner, name, _not_implemented)
        return attribute.__func__ if isinstance(attribute, (classmethod, staticmethod)) else attribute
    default = getattr(builtins, name, _not_implemented) if isinstance(owner, ModuleType) else _not_implemented
    original: Callable[..., Any] = getattr(owner, name, default)
    return original


def _not_implemented(*_: Any, **__: Any) -> Any:
    """Replaces an operator such as ``__divmod__`` that a class does not have: Python then raises a TypeError."""
    return NotImplemented


@contextmanager
def apply_patches(patches: Iterable[Patch]) -> Iterator[None]:
    """Makes the replacements of a table within the context.

    A function is replaced in its own module, and in every module of a model or a library that imported it, under
    another name too. Patches whose module has not been imported have no effect.
    """
    attributes = [
        (patch, attribute) for patch in patches if patch.module is not None and (attribute := patch.find()) is not None
    ]
    modules = [(vars(owner), name) for _, (owner, name) in attributes if isinstance(owner, ModuleType)]
    functions = {id(variables[name]) for variables, name in modules if name in variables}
    places = _places_of(frozenset(functions)) if functions else {}
    with ExitStack() as stack:
        for patch, (owner, name) in attributes:
            original = vars(owner).get(name)
            stack.enter_context(_replaced(owner, name, patch.replacement))
            for module, alias in places.get(id(original), ()):
                if _follows(module, patch, original) and vars(module).get(alias) is original:
                    stack.enter_context(_replaced(module, alias, patch.replacement))
        yield


def _follows(module: ModuleType, patch: Patch, function: Any) -> bool:
    """Returns whether a module that imported a function gets its replacement; the importer of a patch may be one."""
    target = patch.target.partition(":")[0]
    if patch.in_torch:
        return True
    is_defined = is_library(target) or getattr(function, "__module__", None) == target
    return is_defined and not is_library(module.__name__)


def _replaced(owner: Any, name: str, replacement: Any) -> AbstractContextManager[None]:
    """Returns the context in which an attribute is replaced."""
    if isinstance(replacement, Way):
        return replacement.replace(owner, name)
    return replace_attribute(owner, name, replacement)


_Places = dict[int, list[tuple[ModuleType, str]]]
_places_cache: tuple[Any, _Places] = (None, {})  # (state of sys.modules, places by the id of a function)


def _places_of(functions: Set[int]) -> _Places:
    """Returns the modules and the names under which they have each function, by its id.

    There are thousands of modules, so the result is cached until an import, or a definition in ``__main__``.
    """
    global _places_cache  # noqa: PLW0603  a cache of one entry
    state = (functions, len(sys.modules), next(reversed(sys.modules)), len(vars(sys.modules["__main__"])))
    if _places_cache[0] != state:
        places: _Places = {function: [] for function in functions}
        for module in list(sys.modules.values()):
            variables = getattr(module, "__dict__", {})  # sys.modules may hold objects of any type
            if not functions.isdisjoint(map(id, variables.values())):
                for name, value in variables.items():
                    if id(value) in functions:
                        places[id(value)].append((module, name))
        _places_cache = state, places
    return _places_cache[1]
