"""Reads and restores the values of Python that a forward may keep from one call to the next.

They are numbers, strings, tensors that are no buffers, modules, NumPy arrays, iterators, the states of random
generators, and containers and plain objects that hold some. They are attributes of the modules or of their classes, or
global variables that the classes of the modules name.
"""

from __future__ import annotations

import copy
import inspect
import operator
import random
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from functools import lru_cache
from types import CodeType, FunctionType, GeneratorType
from typing import Any, NamedTuple

import numpy as np
import torch

from fx_onnx.messages.source_lines import is_internal, is_library
from fx_onnx.requests.scripts import InterpretedModule, is_script
from fx_onnx.torch_internals.threads import restore_items

__all__ = ["RANDOM", "Place", "PythonState", "Values", "changed_leaves", "kind_of_change", "names_in"]


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

_HOOKS, _KEPT_BY_HOOKS = (Place(None, name, torch.nn.Module) for name in ("hooks", "what hooks keep"))
RANDOM = (Place(None, "random", random.Random), Place(None, "numpy.random", np.random.RandomState))
"""The places of the generators of Python and of NumPy."""

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_NUMBERS = (int, float, bool, str, type(None), np.generic)
_IDENTICAL = (torch.Tensor, torch.nn.Module)
"""The kinds of values that are the same only as one object."""
_VALUES = (*_NUMBERS, *_SYMBOLS, *_IDENTICAL, np.ndarray)
_ATOMS = frozenset(_NUMBERS)
"""The classes of most values, which hold no others."""
_SEQUENCES: tuple[type[Any], ...] = (list, tuple, deque, set)
_DICTS = (dict, OrderedDict, defaultdict, Counter)
_NESTED = 8
"""How deep containers and objects are compared and restored."""
_MAX_ELEMENTS = 2**20
"""The size of the largest array that is compared."""
_MISSING = object()
_KINDS: dict[Any, str] = {
    torch.Tensor: "tensor",
    torch.nn.Module: "module",
    np.ndarray: "NumPy array",
    (int, float, *_SYMBOLS): "Python number",
}
_REPLACED = ("forward", "_parameters", "_buffers")
"""The attributes that a capture itself replaces."""
# The attributes that every module has, such as the dicts of its hooks.
_OWN_ATTRIBUTES = frozenset(vars(torch.nn.Module()))


class PythonState:
    """The values of Python that the forward of a model may change, as they are when this object is made.

    Attributes:
        values: the values by place.
    """

    def __init__(self, model: torch.nn.Module, buffers: Container[str] = ()) -> None:
        """Reads the values.

        Args:
            model: The model.
            buffers: The paths of the buffers that are left out of ``values``.
        """
        self._model, self._buffers = model, buffers
        self._spaces = [
            (path, module, name, {key: _copy_of_iterator(value) for key, value in space.items()})
            for path, module in model.named_modules()
            for name, space in _spaces(module).items()
        ]
        self._generators: Any = random.getstate(), np.random.get_state()
        self._shared = [(place, space, _copy_of_iterator(value)) for place, space, value in _shared_values(model)]
        self._containers: list[tuple[Place, Any, Any]] = []
        self.values: Mapping[Place, Values] = self._read()

    def _read(self) -> dict[Place, Values]:
        """Returns the values by place; keeps what holds them."""
        values = _states_of_generators()
        seen: set[int] = set()  # an object to which several modules refer, such as a config, is read once
        for place, value in _values(self._model, self._buffers):
            if type(value) in _ATOMS:
                values[place] = {(): value}
            else:
                held: list[tuple[Any, Any]] = []
                values[place] = dict(_leaves(value, seen, (), held))
                self._containers += [(place, container, items) for container, items in held]
        attributes = (value for module in self._model.modules() for value in vars(module).values())
        tables = [value for value in attributes if type(value) is OrderedDict]
        self._containers += [(_HOOKS, table, list(table.items())) for table in tables]
        for value in [value for table in tables for hook in table.values() for value in _held_by(hook)]:
            held = []
            list(_leaves(value, seen, (), held))
            self._containers += [(_KEPT_BY_HOOKS, container, items) for container, items in held]
        return values

    def again(self) -> PythonState:
        """Returns the state as it is now."""
        return PythonState(self._model, self._buffers)

    def leaves(self, place: Place) -> Values:
        """Returns the leaves of the value that is at a place now."""
        own = [
            (module, name)
            for path, module, name, _ in self._spaces
            if (path, type(module)) == (place.owner, place.kind)
        ]
        spaces = (_spaces(module)[name] for module, name in own)
        values = [space[place.name] for space in spaces if place.name in space]
        if not own:
            values = [value for other, _, value in _shared_values(self._model) if other == place]
        return dict(_leaves(values[0], set(), (), [])) if values else {}

    def restore(self, kept: Collection[Place] = (), shared: Collection[Place] = ()) -> None:
        """Restores the attributes of the modules that have changed.

        What is equal is not written, because another thread may read it meanwhile.

        Args:
            kept: The places that stay as they are.
            shared: The attributes of classes, the global variables and the random generators that are restored too.
                Others may change them.
        """
        for path, module, name, items in self._spaces:
            space = _spaces(module)[name]
            if space.keys() == items.keys() and all(space[key] is value for key, value in items.items()):
                continue
            names = {*_REPLACED, *(place.name for place in kept if place.owner == path)}
            others = {key: _copy_of_iterator(value) for key, value in items.items() if key not in names}
            restore_items(space, others | {key: space[key] for key in names & space.keys()})
        left = {*kept, *(place for place, *_ in self._shared if place not in shared)}
        if kept:  # a kept value may tell that a hook is there
            left.add(_HOOKS)
        for place, set_state, state in zip(
            RANDOM, (random.setstate, np.random.set_state), self._generators, strict=True
        ):
            if place in shared and place not in left:
                set_state(state)
        for place, space, value in self._shared:
            if place not in left and vars(space).get(place.name) is not value:
                setattr(space, place.name, _copy_of_iterator(value))
        for place, container, items in self._containers:
            if place not in left:
                _refill(container, items)


def _held_by(hook: Any) -> Iterator[Any]:
    """Yields the objects to which a hook may write, such as a list of features: its own, and those that its code names.

    A number among them, which the hook replaces, is not restored.
    """
    yield hook
    yield getattr(hook, "__self__", None)
    yield from (*getattr(hook, "args", ()), *getattr(hook, "keywords", {}).values())
    function: Any = getattr(hook, "func", getattr(hook, "__func__", hook))
    if isinstance(function, FunctionType) and not is_internal(function.__code__.co_filename):
        yield from inspect.getclosurevars(function).nonlocals.values()
        yield from (function.__globals__.get(name) for name in names_in(function.__code__))


def _spaces(module: torch.nn.Module) -> dict[str, dict[str, Any]]:
    """Returns the dicts that have the attributes of a module; in a capture, a thread has its own buffers.

    Those of a TorchScript module are not in Python, and what its interpreter keeps there is not of the model.
    """
    spaces = {"": vars(module), "buffers": module._buffers, "modules": module._modules}
    if isinstance(module, InterpretedModule):
        del spaces[""]
    return {} if is_script(module) else spaces


def _states_of_generators() -> dict[Place, Values]:
    generator: Any = np.random.get_state()
    states = random.getstate(), (generator[1].tobytes(), *generator[2:])
    return {place: {(): state} for place, state in zip(RANDOM, states, strict=True)}


def _values(model: torch.nn.Module, buffers: Container[str]) -> Iterator[tuple[Place, Any]]:
    """Yields the attributes that a forward may change."""
    for path, module in model.named_modules():
        for kind, space in _spaces(module).items():
            for name, value in space.items():
                is_left_out = kind == "buffers" and f"{path}.{name}".removeprefix(".") in buffers
                if name not in _OWN_ATTRIBUTES and not is_left_out:
                    yield Place(path, name, type(module)), value
    yield from ((place, value) for place, _, value in _shared_values(model))


def _shared_values(model: torch.nn.Module) -> Iterator[tuple[Place, Any, Any]]:
    """Yields the values of the classes of the modules, and of the global variables that they name, with their owner."""
    kinds = dict.fromkeys(map(type, model.modules()))
    for kind in {base: None for cls in kinds for base in cls.__mro__ if not is_library(base.__module__)}:
        for name, value in vars(kind).items():
            if isinstance(value, FunctionType) and not is_internal(value.__code__.co_filename):
                for variable in sorted(names_in(value.__code__) & value.__globals__.keys()):
                    if not variable.startswith("__") and value.__module__ in sys.modules:
                        place = Place(value.__module__, variable, kind)
                        yield place, sys.modules[value.__module__], value.__globals__[variable]
            elif not name.startswith("__") and not isinstance(value, FunctionType):
                yield Place(kind, name, kind), kind, value


@lru_cache(maxsize=4096)
def names_in(code: CodeType) -> frozenset[str]:
    """Returns the names of global variables and attributes in a function and in the functions inside it."""
    inner = (names_in(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return frozenset(code.co_names).union(*inner)


def _leaves(
    value: Any, seen: set[int], path: tuple[Any, ...], held: list[tuple[Any, Any]]
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yields the values in a value, with what leads to them; copies of arrays. ``held`` receives what holds them."""
    if isinstance(value, np.ndarray):
        array = value.copy() if value.size <= _MAX_ELEMENTS else None
        held.append((value, array))
        yield path, array
    elif isinstance(value, _VALUES):
        yield path, value
    elif len(path) <= _NESTED:
        if _is_plain(value):
            if id(value) in seen:
                return
            seen.add(id(value))
        items = list(_items(value))
        held.append((value, items))
        for key, item in items:
            yield from _leaves(item, seen, (*path, key), held)


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    """Returns what a container or an object of the user's holds, or what changes with each step of an iterator."""
    if isinstance(value, dict):
        return list(dict.items(value))  # those of a class of the user's may raise or change something
    if (kind := next((sequence for sequence in _SEQUENCES if isinstance(value, sequence)), None)) is not None:
        items = list(kind.__iter__(value))
        return zip(items, items, strict=True) if kind is set else enumerate(items)
    if hasattr(type(value), "__next__") and not isinstance(type(value).__next__, FunctionType):
        variables = getattr(getattr(value, "gi_frame", None), "f_locals", {})
        numbers = {key: item for key, item in variables.items() if isinstance(item, _NUMBERS)}
        return {"text": repr(value).partition(" at 0x")[0], "left": operator.length_hint(value, 0), **numbers}.items()
    return list(vars(value).items()) if _is_plain(value) else ()


def _is_plain(value: Any) -> bool:
    """Returns whether a value is an object of the user's with attributes."""
    is_object = hasattr(value, "__dict__") and not isinstance(value, (type, torch.nn.Module))
    return is_object and not is_library(type(value).__module__)


def _copy_of_iterator(value: Any) -> Any:
    """Returns a copy of an iterator over a list or the like, which starts where it is; other values as they are."""
    is_copied = type(value).__module__ == "builtins" and hasattr(value, "__next__") and hasattr(value, "__reduce__")
    return copy.copy(value) if is_copied and not isinstance(value, GeneratorType) else value


def _refill(container: Any, items: Any) -> None:
    """Gives a container, an object or an array what it held, if that has changed; an iterator cannot go back."""
    if isinstance(container, np.ndarray):
        if items is not None and not np.array_equal(container, items):
            container[...] = items
    elif type(container) in _DICTS:
        if container or items:  # most are the empty tables of hooks
            restore_items(container, dict(items))
    elif type(container) in (list, deque, set):
        before = [item for _, item in items]
        if len(container) != len(before) or any(a is not b for a, b in zip(container, before, strict=True)):
            container.clear()
            container.update(before) if isinstance(container, set) else container.extend(before)
    elif not isinstance(container, (dict, *_SEQUENCES)) and _is_plain(container):
        restore_items(vars(container), dict(items))


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
    return next((name for kind, name in _KINDS.items() if any(isinstance(item, kind) for item in pair)), "Python value")
