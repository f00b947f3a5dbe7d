"""The translation table: which function translates which ATen operator, and from which opset on."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch

from fx_onnx.extension_points.plugins import Group
from fx_onnx.extension_points.rooms import TABLE, find
from fx_onnx.onnx_model.opsets import MINIMUM_NATIVE_OPSET
from fx_onnx.torch_internals.operators import Operator
from fx_onnx.torch_internals.torch_private import OpOverload

# An ATen OpOverload, a higher-order operator, a Python function such as operator.add, or the qualified name of an
# operator that another library defines when it is imported, such as "transformers::grouped_mm_fallback".
Target = Any
Declines = Callable[[tuple[Any, ...], Mapping[str, Any], Sequence[Any]], bool]
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Translation:
    """One translation of an FX node target to ONNX.

    Attributes:
        target: the FX node target.
        function: takes the emitter, then the parameters of the ATen schema; returns one value or a sequence of them.
        since: the first opset that has the operators that the function emits.
        supports: takes those parameters of the ATen schema that it names, with fake tensors for tensors. If it returns
            False, the node is decomposed instead.
        is_custom: whether the user wrote the function. ONNX infers the types of its results, and they are compared with
            those of the operator.
        declines: takes the arguments, the keyword arguments and the fake results of a call. If it returns True, the
            next translation is used.
        next: the translation that this one has precedence over.
    """

    target: Target
    function: Callable[..., Any]
    since: int = MINIMUM_NATIVE_OPSET
    supports: Callable[..., bool] | None = None
    is_custom: bool = False
    declines: Declines | None = None
    next: Translation | None = None

    @functools.cached_property
    def accepts_all(self) -> bool:
        """Whether this translation supports every call of its target, so that the arguments need not be looked at."""
        if self.declines is not None or self.supports is not None:
            return False
        return self.is_custom or not any(_plain_floats(self.function).values())

    def accepts(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        results: Sequence[Any] = (),
        target: Target | None = None,
    ) -> bool:
        """Returns whether this translation supports a call with these fake tensors and symbolic numbers.

        ``target`` is the operator that is called, if this translation has only its name.

        A parameter whose annotation is ``float`` becomes an ONNX attribute or a constant, so its argument must not be
        symbolic, neither a float nor a size. A user's translation gets any argument.
        """
        if self.declines is not None and self.declines(args, kwargs, results):
            return False
        numbers = (torch.SymFloat, torch.SymInt)
        if not self.is_custom and any(isinstance(argument, numbers) for argument in (*args, *kwargs.values())):
            plain = _plain_floats(self.function)
            named = dict(zip(plain, args, strict=False)) | dict(kwargs)
            if any(plain.get(name) and isinstance(argument, numbers) for name, argument in named.items()):
                return False
        if self.supports is None:
            return True
        schema = getattr(target or self.target, "_schema", None)  # a function of Python has none
        names = _plain_floats(self.function) if schema is None else [argument.name for argument in schema.arguments]
        given = dict(zip(names, args, strict=False)) | dict(kwargs)
        return self.supports(**{name: given[name] for name in _parameters(self.supports) if name in given})


@dataclass(frozen=True)
class Fallback:
    """The translations of calls that stay calls of torch's operators (``operator_export_type``).

    Attributes:
        find: returns the function for a target, or None.
        is_first: whether it has precedence over the translations of the package, so that nothing is decomposed.
    """

    find: Callable[[Target], Callable[..., Any] | None] = lambda target: None
    is_first: bool = False


@functools.cache
def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


@functools.cache
def _plain_floats(function: Callable[..., Any]) -> Mapping[str, bool]:
    """Returns for each parameter of an operator, in order, whether the translation takes it as a plain float."""
    _emitter, *parameters = inspect.signature(function).parameters.values()
    return {
        parameter.name: parameter.annotation in (float, "float", float | None, "float | None")
        for parameter in parameters
    }


PLUGINS = Group(
    "fx_onnx.translations", "a dict like custom_translation_table", lambda value: isinstance(value, Mapping)
)
_registered: dict[Target, list[Translation]] = {}


def registered_translations() -> Mapping[Target, Sequence[Translation]]:
    """Returns all registered translations by target, the newest ``since`` first."""
    return _registered


def translates(
    *targets: Target, since: int = MINIMUM_NATIVE_OPSET, supports: Callable[..., bool] | None = None
) -> Callable[[Function], Function]:
    """Registers the decorated function as the translation of each target; see ``Translation`` for the arguments.

    A target that the installed torch does not have is skipped.

    Raises:
        ValueError: a target already has a translation with the same ``since``.
    """

    def register(function: Function) -> Function:
        for target in targets:
            if isinstance(target, Operator):
                continue
            entries = _registered.setdefault(target, [])
            if any(entry.since == since for entry in entries):
                raise ValueError(f"{target} has two translations since opset {since}")
            entries.append(Translation(target, function, since, supports))
            entries.sort(key=lambda entry: -entry.since)
        translation_table.cache_clear()
        return function

    return register


class TranslationTable(Mapping[Target, Translation]):
    """The translations of one opset: for each target the one with the newest ``since`` that the opset has reached."""

    def __init__(self, opset: int, entries: Mapping[Target, Translation], fallback: Fallback | None = None) -> None:
        self.opset = opset
        self._entries = dict(entries)
        self._fallback = fallback or Fallback()

    def __getitem__(self, target: Target) -> Translation:
        translation = self._entries.get(target)
        if translation is None and isinstance(target, OpOverload):
            return self._entries[target._schema.name]
        return self._entries[target] if translation is None else translation

    def __iter__(self) -> Iterator[Target]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def values(self) -> ValuesView[Translation]:
        """Returns the translations, without the search of each target that a Mapping does."""
        return self._entries.values()

    def find_for_all(self, target: Target) -> Translation | None:
        """Returns the translation of an operator if it supports every call; None if that depends on the arguments."""
        entry = self.get(target)
        return entry if entry is not None and entry.accepts_all and not self._fallback.is_first else None

    def find(
        self, target: Target, args: tuple[Any, ...], kwargs: Mapping[str, Any], results: Sequence[Any] = ()
    ) -> Translation | None:
        """Returns the translation that supports a call; None if the call must be decomposed.

        Args:
            target: the operator.
            args: the arguments, with fake tensors and symbolic numbers for those that are nodes.
            kwargs: the keyword arguments.
            results: the fake results.
        """
        entry = self.get(target)
        while entry is not None and entry.is_custom and not entry.accepts(args, kwargs, results, target):
            entry = entry.next
        if self._fallback.is_first and (entry is None or not entry.is_custom):
            entry = self.fall_back(target) or entry
        while entry is not None and not entry.accepts(args, kwargs, results, target):
            entry = entry.next
        if entry is None and isinstance(target, OpOverload) and target._schema.name in TABLE["operators"]:
            find("operators", target._schema.name)  # registers what it translates
            if (whole := translation_table(self.opset)) is not self:
                return whole.find(target, args, kwargs, results)
        return entry

    def fall_back(self, target: Target) -> Translation | None:
        """Returns the translation of a call that has no other and no decomposition; None if it is an error."""
        function = self._fallback.find(target)
        return None if function is None else Translation(target, function)

    def with_fallback(self, fallback: Fallback) -> TranslationTable:
        """Returns a copy of this table with another fallback."""
        return TranslationTable(self.opset, self._entries, fallback)

    def extended(self, entries: Iterable[Translation]) -> TranslationTable:
        """Returns a copy of this table in which other translations have precedence for the calls that they accept."""
        added = {entry.target: replace(entry, next=self.get(entry.target)) for entry in entries}
        return TranslationTable(self.opset, {**self._entries, **added}, self._fallback)


@functools.cache
def translation_table(opset: int) -> TranslationTable:
    """Returns the translation table of an opset, built once from what importing ``fx_onnx.translations`` registers."""
    newest = {}
    for target, entries in _registered.items():
        for entry in entries:
            if entry.since <= opset:
                newest[target] = entry
                break
    return TranslationTable(opset, newest)
