"""Reads the values of Python that a forward may keep from one call to the next, to compare them before and after it.

They are numbers, strings, tensors that are no buffers, modules, NumPy arrays, iterators, the states of random
generators, and containers and plain objects that hold some. They are attributes of the modules or of their classes, or
global variables that the classes of the modules name.
"""

from __future__ import annotations

import operator
import random
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import numpy as np
import torch

from fx_onnx.messages.source_lines import is_internal, is_library

__all__ = ["RANDOM", "Place", "Values", "changed_leaves", "kind_of_change", "names_in", "python_values"]


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


Values = Mapping[tuple[Any, ...], Any]
"""What is at a place: by the empty tuple, or for a container or an object by the keys that lead to each item."""

RANDOM = (Place(None, "random", random.Random), Place(None, "numpy.random", np.random.RandomState))
"""The places of the generators of Python and of NumPy."""

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_NUMBERS = (int, float, bool, str, type(None), np.generic)
_IDENTICAL = (torch.Tensor, torch.nn.Module)
"""The kinds of values that are the same only as one object."""
_VALUES = (*_NUMBERS, *_SYMBOLS, *_IDENTICAL, np.ndarray)
_ATOMS = frozenset(_NUMBERS)
"""The classes of most values, which hold no others."""
_NESTED = 3
"""How deep containers and objects are compared: a dict of lists of dicts."""
_MAX_ELEMENTS = 2**20
"""The size of the largest array that is compared."""
_MISSING = object()
_KINDS: dict[Any, str] = {
    torch.Tensor: "tensor",
    torch.nn.Module: "module",
    np.ndarray: "NumPy array",
    (int, float, *_SYMBOLS): "Python number",
}
# The attributes that every module has, such as the dicts of its hooks.
_OWN_ATTRIBUTES = frozenset(vars(torch.nn.Module()))


def python_values(model: torch.nn.Module, buffers: Container[str] = ()) -> dict[Place, Values]:
    """Returns the values that the forward of a model may change, by place.

    Args:
        model: The model.
        buffers: The paths of the buffers that are left out.
    """
    seen: set[int] = set()  # an object to which several modules refer, such as a config, is read once
    values: dict[Place, Any] = {}
    kinds: dict[type, None] = {}
    for path, module in model.named_modules():
        kinds[kind := type(module)] = None
        own = {
            name: value for name, value in module._buffers.items() if f"{path}.{name}".removeprefix(".") not in buffers
        }
        for name, value in {**vars(module), **own, **module._modules}.items():
            if name not in _OWN_ATTRIBUTES:
                values[Place(path, name, kind)] = value
    for base in {base: None for kind in kinds for base in kind.__mro__ if not is_library(base.__module__)}:
        values.update(_shared_values(base))
    generator: Any = np.random.get_state()
    states = random.getstate(), (generator[1].tobytes(), *generator[2:])
    return {place: {(): state} for place, state in zip(RANDOM, states, strict=True)} | {
        place: {(): value} if type(value) in _ATOMS else dict(_leaves(value, seen, ()))
        for place, value in values.items()
    }


def _shared_values(kind: type) -> Iterator[tuple[Place, Any]]:
    """Yields the values of a class, and of the global variables that its functions name."""
    for name, value in vars(kind).items():
        if isinstance(value, FunctionType) and not is_internal(value.__code__.co_filename):
            for variable in sorted(names_in(value.__code__) & value.__globals__.keys()):
                if not variable.startswith("__"):
                    yield Place(value.__module__, variable, kind), value.__globals__[variable]
        elif not name.startswith("__") and not isinstance(value, FunctionType):
            yield Place(kind, name, kind), value


@lru_cache(maxsize=4096)
def names_in(code: CodeType) -> frozenset[str]:
    """Returns the names of global variables and attributes in a function and in the functions inside it."""
    inner = (names_in(each) for each in code.co_consts if isinstance(each, CodeType))
    return frozenset(code.co_names).union(*inner)


def _leaves(value: Any, seen: set[int], path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yields the values in a value, with what leads to them; copies of arrays."""
    if isinstance(value, np.ndarray):
        yield path, value.copy() if value.size <= _MAX_ELEMENTS else None
    elif isinstance(value, _VALUES):
        yield path, value
    elif len(path) <= _NESTED:
        for key, item in _items(value, seen):
            yield from _leaves(item, seen, (*path, key))


def _items(value: Any, seen: set[int]) -> Iterable[tuple[Any, Any]]:
    """Returns what a container or an object of the user's holds, or what changes with each step of an iterator."""
    if isinstance(value, dict):
        return list(dict.items(value))  # those of a class of the user's may raise or change something
    if (kind := next((each for each in (list, tuple, deque, set) if isinstance(value, each)), None)) is not None:
        items = list(kind.__iter__(value))
        return zip(items, items, strict=True) if kind is set else enumerate(items)
    if hasattr(type(value), "__next__"):
        variables = getattr(getattr(value, "gi_frame", None), "f_locals", {})
        numbers = {key: item for key, item in variables.items() if isinstance(item, _NUMBERS)}
        return {"text": repr(value), "left": operator.length_hint(value, 0), **numbers}.items()
    is_plain = hasattr(value, "__dict__") and not isinstance(value, (type, torch.nn.Module))
    if not is_plain or is_library(type(value).__module__) or id(value) in seen:
        return ()
    seen.add(id(value))
    return list(vars(value).items())


def changed_leaves(before: Values, after: Values) -> list[tuple[Any, Any]]:
    """Returns the values that differ, before and after the forward. One that is missing is an object without a kind."""
    pairs = ((before.get(key, _MISSING), after.get(key, _MISSING)) for key in {**before, **after})
    return [pair for pair in pairs if pair[0] is not pair[1] and not _is_same(*pair)]


def _is_same(value: Any, now: Any) -> bool:
    if isinstance(value, np.ndarray) and isinstance(now, np.ndarray):
        return np.array_equal(value, now, equal_nan=value.dtype.kind in "fc")
    if isinstance(value, _IDENTICAL) or type(value) is not type(now):
        return False
    return bool(value == now or value != value)  # NaN differs from itself


def kind_of_change(pair: tuple[Any, Any]) -> str:
    """Returns what a changed value is in messages."""
    return next((name for kind, name in _KINDS.items() if any(isinstance(each, kind) for each in pair)), "Python value")
