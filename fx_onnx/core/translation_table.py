"""The translation table: which function translates which ATen operator, from which opset on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from fx_onnx.core.opsets import MINIMUM_OPSET
from fx_onnx.core.torch_private import OpOverload

# An ATen OpOverload, a higher-order operator, a plain Python function such as operator.add, or the qualified name of an
# operator that some other library defines when it is imported, such as "transformers::grouped_mm_fallback".
Target = Any
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Translation:
    """One way to say ``target`` in ONNX.

    Attributes:
        target: the FX node target it translates.
        function: takes the emitter, then the ATen schema's parameters; returns one value, or a sequence of them.
        since: the first opset that has the operators it emits.
        supports: takes the parameters with FX metadata values (fake tensors) in the place of tensors; where it says no,
            the node is decomposed instead.
    """

    target: Target
    function: Callable[..., Any]
    since: int = MINIMUM_OPSET
    supports: Callable[..., bool] | None = None

    def accepts(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Whether it says this call: ``args`` and ``kwargs`` hold fake tensors and symbolic numbers."""
        return self.supports is None or self.supports(*args, **kwargs)


_translations: dict[Target, list[Translation]] = {}


def translates(
    *targets: Target, since: int = MINIMUM_OPSET, supports: Callable[..., bool] | None = None
) -> Callable[[Function], Function]:
    """Registers a translation of each of ``targets``.

    Raises:
        ValueError: a target has a translation for the same opset already; nothing is registered silently over another.
    """

    def register(function: Function) -> Function:
        for target in targets:
            entries = _translations.setdefault(target, [])
            if any(entry.since == since for entry in entries):
                raise ValueError(f"{target} has two translations since opset {since}")
            entries.append(Translation(target, function, since, supports))
            entries.sort(key=lambda entry: -entry.since)
        table.cache_clear()
        return function

    return register


class Table(Mapping[Target, Translation]):
    """The translations of one opset: for each target the newest whose ``since`` is not above it."""

    def __init__(self, opset: int, entries: Mapping[Target, Translation]) -> None:
        self.opset = opset
        self._entries = dict(entries)

    def __getitem__(self, target: Target) -> Translation:
        found = self._entries.get(target)
        if found is None and isinstance(target, OpOverload):
            return self._entries[target._schema.name]
        return self._entries[target] if found is None else found

    def __iter__(self) -> Any:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, target: Target, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Translation | None:
        """The translation that says this call, or None: then the call must be decomposed."""
        entry = self.get(target)
        return entry if entry is not None and entry.accepts(args, kwargs) else None

    def extended(self, custom: Mapping[Target, Callable[..., Any]]) -> Table:
        """This table with a user's translations over it."""
        return Table(self.opset, {**self._entries, **{t: Translation(t, f) for t, f in custom.items()}})


@functools.cache
def table(opset: int) -> Table:
    """The translation table of an opset; built once per opset, from what ``fx_onnx.ops`` registered on import."""
    newest = {}
    for target, entries in _translations.items():
        for entry in entries:
            if entry.since <= opset:
                newest[target] = entry
                break
    return Table(opset, newest)
