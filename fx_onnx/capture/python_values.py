"""Reads the values of Python that a forward may keep from one call to the next, to compare them before and after it.

They are numbers, strings, tensors that are no buffers, NumPy arrays, iterators, the states of random generators, and
containers and plain objects that hold some. They are attributes of the modules or of their classes, or global variables
that the classes of the modules name.
"""

from __future__ import annotations

import operator
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np
import torch

from fx_onnx.core.source_lines import is_internal, is_library

__all__ = ["RANDOM", "Place", "first_change", "is_container", "python_values", "tensors_in"]


class Place(NamedTuple):
    """Where a value is.

    Attributes:
        owner: the path of a module, a class, or the name of a Python module.
        name: the name of the attribute or the variable.
        kind: the class of the module, or the class whose code names the variable.
    """

    owner: str | type | None
    name: str
    kind: type

    def __str__(self) -> str:
        if isinstance(self.owner, type):
            return f"the class {self.owner.__name__}"
        return f"{self.owner} ({self.kind.__name__})" if self.owner else self.kind.__name__


RANDOM = (Place(None, "random", random.Random), Place(None, "numpy.random", np.random.RandomState))
"""The places of the generators of Python and of NumPy."""

_NUMBERS = (int, float, bool, str, type(None), np.generic)
_VALUES = (*_NUMBERS, torch.Tensor, np.ndarray)
_CONTAINERS = (list, tuple, dict, set, deque)
_NESTED = 3
"""How deep containers and objects are compared: a dict of lists of dicts."""
_MAX_ELEMENTS = 2**20
"""The size of the largest array that is compared."""
_MISSING = object()
# The attributes that every module has, such as the dicts of its hooks.
_OWN_ATTRIBUTES = frozenset(vars(torch.nn.Module()))


def python_values(model: torch.nn.Module) -> dict[Place, Any]:
    """Returns the values that the forward of a model may change, by place. A container becomes a dict of its items."""
    read = _Reader().read
    generators = random.getstate(), np.random.get_state()
    found = {place: read(state) for place, state in zip(RANDOM, generators, strict=True)}
    kinds: dict[type, None] = {}
    for path, module in model.named_modules():
        kinds[type(module)] = None
        for name, value in vars(module).items():
            if name not in _OWN_ATTRIBUTES and _is_compared(value):
                found[Place(path, name, type(module))] = read(value)
    for kind in kinds:
        for base in kind.__mro__:
            if not is_library(base.__module__):
                found.update(_shared_values(base, read))
    return found


def _shared_values(kind: type, read: Callable[[Any], Any]) -> Iterator[tuple[Place, Any]]:
    """Yields the values of a class, and of the global variables that its functions name."""
    functions = [each for each in vars(kind).values() if isinstance(each, FunctionType)]
    for name, value in vars(kind).items():
        if not name.startswith("__") and not isinstance(value, FunctionType) and _is_compared(value):
            yield Place(kind, name, kind), read(value)
    for function in functions:
        if is_internal(function.__code__.co_filename):
            continue
        for name in sorted(_names(function.__code__) & function.__globals__.keys()):
            value = function.__globals__[name]
            if not name.startswith("__") and _is_compared(value):
                yield Place(function.__module__, name, kind), read(value)


def _names(code: CodeType) -> set[str]:
    """Returns the names of global variables and attributes in a function and in the functions inside it."""
    inner = (_names(each) for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*inner)


def _is_compared(value: Any) -> bool:
    return isinstance(value, (*_VALUES, *_CONTAINERS)) or _is_iterator(value) or _is_plain_object(value)


def _is_iterator(value: Any) -> bool:
    return hasattr(type(value), "__next__")


def _is_plain_object(value: Any) -> bool:
    """Returns whether a value is an object with attributes, of a class of the user's or of a library of models."""
    is_module = isinstance(value, (type, torch.nn.Module))
    return hasattr(value, "__dict__") and not is_module and not is_library(type(value).__module__)


class _Reader:
    """Reads values; an object to which several modules refer, such as a config, is read once."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def read(self, value: Any, depth: int = 0) -> Any:
        """Returns a value as it is, or a copy of an array, or a dict of the items of a container or an object."""
        if isinstance(value, np.ndarray):
            return value.copy() if value.size <= _MAX_ELEMENTS else None
        if _is_iterator(value):
            return _state_of_iterator(value)
        if isinstance(value, _VALUES):
            return value
        return {
            key: self.read(item, depth + 1)
            for key, item in self._items(value)
            if isinstance(item, _VALUES) or (depth < _NESTED and _is_compared(item))
        }

    def _items(self, value: Any) -> Iterable[tuple[Any, Any]]:
        if isinstance(value, dict):
            return value.items()
        if isinstance(value, _CONTAINERS):
            return ((item, item) for item in value) if isinstance(value, set) else enumerate(value)
        if id(value) in self._seen:
            return ()
        self._seen.add(id(value))
        attributes: dict[str, Any] = vars(value)
        return attributes.items()


def _state_of_iterator(value: Any) -> dict[str, Any]:
    """Returns what changes with each step: the text, the number of steps left, the variables of a generator."""
    frame = getattr(value, "gi_frame", None)
    variables = (
        {} if frame is None else {key: item for key, item in frame.f_locals.items() if isinstance(item, _NUMBERS)}
    )
    return {"text": repr(value), "left": operator.length_hint(value, 0), **variables}


def is_container(value: Any) -> bool:
    """Returns whether a value, as ``python_values`` returns it, holds others."""
    return isinstance(value, dict)


def tensors_in(values: Mapping[Any, Any]) -> Iterator[torch.Tensor]:
    """Yields the tensors in what ``python_values`` returns."""
    for each in values.values():
        if isinstance(each, torch.Tensor):
            yield each
        elif isinstance(each, dict):
            yield from tensors_in(each)


def first_change(value: Any = _MISSING, now: Any = _MISSING) -> str | None:
    """Returns the kind of the value that changed, of the first one in a container; None if none did."""
    if isinstance(value, dict) and isinstance(now, dict):
        changes = (first_change(value.get(key, _MISSING), now.get(key, _MISSING)) for key in {**value, **now})
        return next((found for found in changes if found is not None), None)
    if isinstance(value, dict) or isinstance(now, dict):
        return "Python value"
    if isinstance(value, torch.Tensor) or isinstance(now, torch.Tensor):
        return None if value is now else "tensor"
    if isinstance(value, np.ndarray) or isinstance(now, np.ndarray):
        return None if np.array_equal(value, now, equal_nan=True) else "NumPy array"
    if type(value) is type(now) and (value == now or value != value):  # NaN differs from itself
        return None
    return "Python number" if isinstance(now, (int, float)) or isinstance(value, (int, float)) else "Python value"
