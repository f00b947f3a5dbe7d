"""Branches and loop bodies as functions of tensors: which outer values they read, change and return.

torch's higher-order operators call a body with tensors, and the body may read nothing else. A Region is one run of a
body. It maps the outer values that the body reads to copies in the body, so the body does not change the outer values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fx_onnx.capture.torchscript.script_values import Instance, ScalarTensor, Uninitialized, rebuild
from fx_onnx.core.symbolic_sizes import expression
from fx_onnx.core.torch_private import storage_id

__all__ = ["Form", "MergeError", "Region", "ScriptRaise", "content", "merge", "shares_storage"]

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_NUMBER_DTYPES = {"bool": torch.bool, "int": torch.int64, "float": torch.float64}


class ScriptRaise(Exception):
    """The model executes a ``raise`` statement.

    Attributes:
        message: The message of the model's exception.
        place: The place of the statement as text.
    """

    def __init__(self, message: str, place: str) -> None:
        super().__init__(f"{message}{place}")
        self.message = message
        self.place = place


class MergeError(Exception):
    """Two values of one variable have no common form. The message names both."""


class Region:
    """One run of a branch or a loop body.

    Attributes:
        parent: The region around it, or None.
        given: The body's value of each outer tensor and symbolic number, by key; None in a run that discovers them.
        read: The outer tensors and symbolic numbers that the body has read, by key, in order.
        assigned: The attributes of modules that the body has assigned, by module and name.
    """

    def __init__(self, parent: Region | None, given: Mapping[Any, Any] | None = None) -> None:
        self.parent = parent
        self.given = given
        self.read: dict[Any, Any] = {}
        self.assigned: dict[tuple[Any, str], Any] = {}
        self.containers: dict[int, tuple[Any, Any]] = {}  # (outer, inner) by the id of the outer
        self._inner: dict[Any, Any] = {}
        self._outer: dict[int, Any] = {}  # by the id of the inner
        self._versions: dict[Any, int] = {}

    def enter(self, value: Any) -> Any:
        """Returns an outer value as the body sees it."""
        known = len(self.containers)
        inner = rebuild(value, self._leaf, self.containers)
        if len(self.containers) > known:
            self._outer.update((id(own), outer) for outer, own in self.containers.values())
        return inner

    def outer_of(self, inner: Any) -> Any:
        """Returns the outer value that ``inner`` is the body's view of; NotImplemented if there is none."""
        return self._outer.get(id(inner), NotImplemented)

    def written(self) -> dict[Any, tuple[torch.Tensor, torch.Tensor]]:
        """Returns the (outer, inner) tensors to which the body has written in place, by key."""
        pairs = {key: (self.read[key], inner) for key, inner in self._inner.items() if key in self._versions}
        return {key: pair for key, pair in pairs.items() if pair[1]._version != self._versions[key]}

    def changed_containers(self) -> list[tuple[Any, Any]]:
        """Returns the (outer, inner) lists, dicts and objects whose content the body has changed."""
        return [(outer, inner) for outer, inner in self.containers.values() if self._differs(outer, inner)]

    def _differs(self, outer: Any, inner: Any) -> bool:
        before, after = (content(each) for each in (outer, inner))
        if before.keys() != after.keys():
            return True
        return any(self._expected(before[key]) is not after[key] for key in before)

    def _expected(self, outer: Any) -> Any:
        if isinstance(outer, tuple):
            return outer
        if id(outer) in self.containers:
            return self.containers[id(outer)][1]
        return self._inner.get(_key(outer), outer)

    def _leaf(self, value: Any) -> Any:
        if not isinstance(value, (torch.Tensor, *_SYMBOLS)):
            return value
        key = _key(value)
        if key not in self._inner:
            self.read[key] = value
            if self.given is not None:
                inner = self.given[key]
            else:
                inner = value.clone() if isinstance(value, torch.Tensor) else value
            self._inner[key] = inner
            self._outer[id(inner)] = value
            if isinstance(inner, torch.Tensor):
                self._versions[key] = inner._version
        return self._inner[key]


def _key(value: Any) -> Any:
    if isinstance(value, _SYMBOLS):
        return (type(value), expression(value))
    return id(value)


def content(container: Any) -> dict[Any, Any]:
    """Returns a copy of the items of a container by key, or of the attributes of an object by name."""
    if isinstance(container, ScalarTensor):
        return {"tensor": container.tensor}
    if isinstance(container, Instance):
        return dict(container.attributes)
    return dict(container) if isinstance(container, dict) else dict(enumerate(container))


# --- the form of a value ----------------------------------------------------------------------------------------------


@dataclass
class Form:
    """The form of a variable's value after a branch or a loop: what is known, and what the program computes.

    Attributes:
        kind: ``known``, ``tensor``, a number's ``bool``, ``int`` or ``float``, or the container's ``tuple``, ``list``,
            ``dict`` or ``object``.
        value: The known value, or an example of the tensor.
        parts: The forms of a container's items.
    """

    kind: str
    value: Any = None
    parts: dict[Any, Form] = field(default_factory=dict)

    def leaves(self) -> list[Form]:
        """Returns the forms of the tensors and numbers that the program computes, in order."""
        if self.parts:
            return [leaf for part in self.parts.values() for leaf in part.leaves()]
        return [self] if self.kind in ("tensor", *_NUMBER_DTYPES) else []

    def flatten(self, value: Any) -> list[torch.Tensor]:
        """Returns the tensors of a value of this form, in the order of ``leaves``."""
        if self.parts:
            items = {} if isinstance(value, Uninitialized) else content(value)
            gap = value if isinstance(value, Uninitialized) else None
            return [tensor for key, part in self.parts.items() for tensor in part.flatten(items.get(key, gap))]
        if self.kind == "tensor":
            if isinstance(value, Uninitialized):
                return [torch.zeros(self.value.shape, dtype=self.value.dtype, device=self.value.device)]
            return [(value.as_tensor() if isinstance(value, ScalarTensor) else value).clone()]
        if self.kind in _NUMBER_DTYPES:
            number = 0 if isinstance(value, Uninitialized) else value
            return [torch.scalar_tensor(number, dtype=_NUMBER_DTYPES[self.kind])]
        return []

    def build(self, tensors: list[torch.Tensor], known: Any = None) -> Any:
        """Returns a value of this form; takes its tensors from the front of the list.

        Args:
            tensors: The tensors.
            known: Called with each known value; returns its replacement.
        """
        if self.kind == "known":
            return known(self.value) if known else self.value
        if self.kind == "tensor":
            return tensors.pop(0)
        if self.kind in _NUMBER_DTYPES:
            return tensors.pop(0).item()
        items = {key: part.build(tensors, known) for key, part in self.parts.items()}
        if self.kind == "dict":
            return items
        if self.kind == "object":
            return Instance(attributes=items)
        return tuple(items.values()) if self.kind == "tuple" else list(items.values())

    def example(self, known: Any) -> Any:
        """Returns a value of this form that no operator has computed; its numbers are unknown."""
        leaves = self.leaves()
        tensors = [
            leaf.value.clone() if leaf.kind == "tensor" else torch.empty((), dtype=_NUMBER_DTYPES[leaf.kind])
            for leaf in leaves
        ]
        return self.build(tensors, known)


def merge(first: Any, second: Any, regions: Sequence[Region | None]) -> Form:
    """Returns the common form of a variable's two values.

    Args:
        first: The value after one branch, or before a loop.
        second: The value after the other branch, or after an iteration.
        regions: The runs that computed the two values; None for an outer value.

    Raises:
        MergeError: There is none.
    """
    outer = [v if r is None else r.outer_of(v) for v, r in zip((first, second), regions, strict=True)]
    if outer[0] is outer[1] and outer[0] is not NotImplemented:
        return Form("known", outer[0])
    values = [value for value in (first, second) if not isinstance(value, Uninitialized)]
    if not values:
        return Form("known", first)
    if all(isinstance(value, (torch.Tensor, ScalarTensor)) for value in values):
        example = values[0]
        return Form("tensor", example.as_tensor() if isinstance(example, ScalarTensor) else example)
    kinds = {_number_kind(value) for value in values}
    if len(kinds) == 1 and None not in kinds:
        concrete = len(values) == 2 and not any(isinstance(value, _SYMBOLS) for value in values)
        return Form("known", first) if concrete and first == second else Form(str(kinds.pop()))
    return _merge_containers(first, second, values, regions)


def _merge_containers(first: Any, second: Any, values: list[Any], regions: Sequence[Region | None]) -> Form:
    kind = _container_kind(values[0])
    if kind is None or any(_container_kind(value) != kind for value in values):
        if len(values) == 2 and type(first) is type(second) and first == second:
            return Form("known", first)
        if len(values) == 1:
            return Form("known", values[0])
        raise MergeError(f"a variable is {_described(first)} in one case and {_described(second)} in the other")
    contents = [content(value) for value in values]
    if any(content.keys() != contents[0].keys() for content in contents):
        sizes = " and ".join(str(len(content)) for content in contents)
        raise MergeError(f"a variable is a list or dict whose length depends on data (it has {sizes} items)")
    parts = {}
    for key in contents[0]:
        one, other = (value if isinstance(value, Uninitialized) else content(value)[key] for value in (first, second))
        parts[key] = merge(one, other, regions)
    return Form(kind, None, parts) if parts else Form("known", values[0])


def _number_kind(value: Any) -> str | None:
    kinds = {"bool": (bool, torch.SymBool), "int": (int, torch.SymInt), "float": (float, torch.SymFloat)}
    return next((kind for kind, classes in kinds.items() if isinstance(value, classes)), None)


def _container_kind(value: Any) -> str | None:
    kinds = {"tuple": tuple, "list": list, "dict": dict, "object": Instance}
    return next((kind for kind, cls in kinds.items() if isinstance(value, cls)), None)


def _described(value: Any) -> str:
    return "a tensor" if isinstance(value, (torch.Tensor, ScalarTensor)) else f"{type(value).__name__} {value}"


def shares_storage(written: Mapping[Any, tuple[Any, Any]], read: Mapping[Any, Any]) -> bool:
    """Returns whether a written outer tensor shares its storage with another outer tensor that the body reads."""
    storages = [storage_id(value) for value in read.values() if isinstance(value, torch.Tensor)]
    return any(storages.count(storage_id(outer)) > 1 for outer, _ in written.values())
