"""The translation table: which function translates which ATen operator, and from which opset on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fx_onnx.core.operators import Operator
from fx_onnx.core.opsets import MINIMUM_NATIVE_OPSET
from fx_onnx.core.torch_private import OpOverload

# An ATen OpOverload, a higher-order operator, a Python function such as operator.add, or the qualified name of an
# operator that another library defines when it is imported, such as "transformers::grouped_mm_fallback".
Target = Any
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Translation:
    """One translation of an FX node target to ONNX.

    Attributes:
        target: the FX node target.
        function: takes the emitter, then the parameters of the ATen schema; returns one value or a sequence of them.
        since: the first opset that has the operators that the function emits.
        supports: takes the parameters of the ATen schema, with fake tensors for tensors. If it returns False, the node
            is decomposed instead.
        is_custom: whether the user wrote the function. ONNX infers the types of its results, and they are compared with
            those of the operator.
    """

    target: Target
    function: Callable[..., Any]
    since: int = MINIMUM_NATIVE_OPSET
    supports: Callable[..., bool] | None = None
    is_custom: bool = False

    def accepts(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Returns whether this translation supports a call with these fake tensors and symbolic numbers."""
        return self.supports is None or self.supports(*args, **kwargs)


@dataclass(frozen=True)
class Fallback:
    """The translations of calls that stay calls of torch's operators (``operator_export_type``).

    Attributes:
        find: returns the function for a target, or None.
        is_first: whether it has precedence over the translations of the package, so that nothing is decomposed.
    """

    find: Callable[[Target], Callable[..., Any] | None] = lambda target: None
    is_first: bool = False


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

    def __init__(
        self,
        opset: int,
        entries: Mapping[Target, Translation],
        preferred: Mapping[Target, Translation] | None = None,
        fallback: Fallback | None = None,
    ) -> None:
        self.opset = opset
        self._entries = dict(entries)
        self._preferred = dict(preferred or {})
        self._fallback = fallback or Fallback()

    def __getitem__(self, target: Target) -> Translation:
        found = self._entries.get(target)
        if found is None and isinstance(target, OpOverload):
            return self._entries[target._schema.name]
        return self._entries[target] if found is None else found

    def __iter__(self) -> Iterator[Target]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, target: Target, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Translation | None:
        """Returns the translation that supports a call; None if the call must be decomposed."""
        entry, preferred = self.get(target), self._preferred.get(target)
        if self._fallback.is_first and (entry is None or not entry.is_custom):
            entry, preferred = self.fall_back(target) or entry, None
        for each in (preferred, entry):
            if each is not None and each.accepts(args, kwargs):
                return each
        return None

    def fall_back(self, target: Target) -> Translation | None:
        """Returns the translation of a call that has no other and no decomposition; None if it is an error."""
        function = self._fallback.find(target)
        return None if function is None else Translation(target, function)

    def with_fallback(self, fallback: Fallback) -> TranslationTable:
        """Returns a copy of this table with another fallback."""
        return TranslationTable(self.opset, self._entries, self._preferred, fallback)

    def preferring(self, entries: Iterable[Translation]) -> TranslationTable:
        """Returns a copy of this table in which other translations have precedence for the calls that they support."""
        return TranslationTable(self.opset, self._entries, {entry.target: entry for entry in entries}, self._fallback)

    def extended(self, custom: Mapping[Target, Callable[..., Any]]) -> TranslationTable:
        """Returns a copy of this table in which a user's translations take precedence."""
        added = {target: Translation(target, function, is_custom=True) for target, function in custom.items()}
        preferred = {target: entry for target, entry in self._preferred.items() if target not in added}
        return TranslationTable(self.opset, {**self._entries, **added}, preferred, self._fallback)


@functools.cache
def translation_table(opset: int) -> TranslationTable:
    """Returns the translation table of an opset, built once from what ``fx_onnx.ops`` registers when it is imported."""
    newest = {}
    for target, entries in _registered.items():
        for entry in entries:
            if entry.since <= opset:
                newest[target] = entry
                break
    return TranslationTable(opset, newest)
