"""Branches and loop bodies as functions of tensors: which outer values they read, change and return.

torch's higher-order operators call a body with tensors, and the body may read nothing else. A Region is one run of a
body. It maps the outer values that the body reads to copies in the body, so the body does not change the outer values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fx_onnx.capture.torchscript.script_values import (
    CONTAINERS,
    Instance,
    ScalarTensor,
    Uninitialized,
    as_tensor,
    content,
    like,
    number_dtype,
    rebuild,
)
from fx_onnx.core.symbolic_sizes import expression
from fx_onnx.core.torch_private import storage_id

__all__ = [
    "Computed", "Known", "MergeError", "Region", "ScriptRaise", "build", "flatten", "leaves", "merge", "merge_items",
]  # fmt: skip

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


class ScriptRaise(Exception):
    """The model executes a ``raise`` statement. The text of the exception ends with the place of the statement."""


class MergeError(Exception):
    """Two values of one variable have no common form. The message names both."""


class Region:
    """One run of a branch or a loop body.

    Attributes:
        given: The body's value of each outer tensor and symbolic number, by key; None in a run that discovers them.
        read: The outer tensors and symbolic numbers that the body has read, by key, in order.
    """

    def __init__(self, given: Mapping[Any, Any] | None = None) -> None:
        self.given = given
        self.read: dict[Any, Any] = {}
        self._inner: dict[Any, Any] = {}  # the body's value of what it has read
        self._views: dict[int, tuple[Any, Any]] = {}  # (outer, inner) by the id of the inner, of containers by both ids

    def enter(self, value: Any) -> Any:
        """Returns an outer value as the body sees it."""
        return rebuild(value, self._leaf, self._views)

    def outer_of(self, inner: Any) -> Any:
        """Returns the outer value that ``inner`` is the body's view of; NotImplemented if there is none."""
        return self._views.get(id(inner), (NotImplemented,))[0]

    def mutable(self) -> Iterator[Any]:
        """Yields the outer values that the body may have changed: containers, and the tensors that it has written to.

        Raises:
            MergeError: The body writes to a tensor of which another outer variable is a view.
        """
        yield from (outer for outer, _ in self._views.values() if isinstance(outer, CONTAINERS))
        tensors = [(self.read[key], inner) for key, inner in self._inner.items() if isinstance(inner, torch.Tensor)]
        storages = [storage_id(outer) for outer, _ in tensors]
        for outer, inner in tensors:
            if inner._version > 0:
                if storages.count(storage_id(outer)) > 1:
                    raise MergeError("it writes to a tensor of which another variable is a view")
                yield outer

    def _leaf(self, value: Any) -> Any:
        if not isinstance(value, (torch.Tensor, *_SYMBOLS)):
            return value
        key = (type(value), expression(value)) if isinstance(value, _SYMBOLS) else id(value)
        if key not in self._inner:
            self.read[key] = value
            if self.given is not None:
                inner = self.given[key]
            else:
                inner = value.clone() if isinstance(value, torch.Tensor) else value
            self._inner[key] = inner
            self._views[id(inner)] = value, inner
        return self._inner[key]


# --- the form of a value ----------------------------------------------------------------------------------------------

# A form is a value of lists, tuples, dicts and objects whose leaves are Known and Computed.
Form = Any


@dataclass(eq=False)
class Known:
    """A value that both branches, or all iterations, leave the same."""

    value: Any


@dataclass(eq=False)
class Computed:
    """A tensor or a number that the program computes.

    Attributes:
        example: A tensor of the dtype and the shape.
        is_number: Whether the variable is a number.
    """

    example: torch.Tensor
    is_number: bool = False


def leaves(form: Form) -> list[Computed]:
    """Returns the tensors and numbers that the program computes, in order."""
    if isinstance(form, (Known, Computed)):
        return [form] if isinstance(form, Computed) else []
    return [leaf for part in content(form).values() for leaf in leaves(part)]


def flatten(form: Form, value: Any) -> list[torch.Tensor]:
    """Returns the tensors of a value of a form, in the order of ``leaves``; zeros where a value is Uninitialized."""
    if isinstance(form, Known):
        return []
    if isinstance(form, Computed):
        example = form.example  # whose computation is not recorded
        if isinstance(value, Uninitialized):
            return [torch.zeros(example.shape, dtype=example.dtype, device=example.device)]
        return [torch.scalar_tensor(value, dtype=example.dtype) if form.is_number else as_tensor(value).clone()]
    parts = content(form)
    items = value if isinstance(value, Uninitialized) else content(value, parts)
    return [tensor for key, part in parts.items() for tensor in flatten(part, _item(items, key))]


def build(form: Form, tensors: Iterator[torch.Tensor], known: Callable[[Any], Any] = lambda value: value) -> Any:
    """Returns a value of a form.

    Args:
        form: The form.
        tensors: The tensors, of which the value takes as many as the form has leaves.
        known: Called with each known value; returns its replacement.
    """
    if isinstance(form, Known):
        return known(form.value)
    if isinstance(form, Computed):
        tensor = next(tensors)
        return tensor.item() if form.is_number else tensor
    return like(form, {key: build(part, tensors, known) for key, part in content(form).items()})


def merge(first: Any, second: Any, regions: Sequence[Region]) -> Form:
    """Returns the common form of a variable's two values.

    Args:
        first: The value after one branch, or before an iteration.
        second: The value after the other branch, or after an iteration.
        regions: The runs that computed the two values.

    Raises:
        MergeError: There is none.
    """
    outer = [region.outer_of(value) for region, value in zip(regions, (first, second), strict=True)]
    if outer[0] is outer[1] and outer[0] is not NotImplemented:
        return Known(outer[0])
    values = [value for value in (first, second) if not isinstance(value, Uninitialized)] or [first]
    if all(isinstance(value, (torch.Tensor, ScalarTensor)) for value in values):
        return Computed(as_tensor(values[0]))
    kinds = {_container_kind(value) for value in values}
    if len(kinds) == 1 and None not in kinds:
        return like(values[0], merge_items((first, second), regions))
    dtypes = {number_dtype(value) for value in values}
    is_symbolic = any(isinstance(value, _SYMBOLS) for value in values)
    if type(first) is type(second) and not is_symbolic and first == second:
        return Known(first)
    if len(dtypes) == 1 and None not in dtypes:
        return Computed(torch.empty((), dtype=dtypes.pop()), is_number=True)
    if len(values) == 1:
        return Known(values[0])
    raise MergeError(f"a variable is {_described(first)} in one case and {_described(second)} in the other")


def merge_items(pair: Sequence[Any], regions: Sequence[Region]) -> dict[Any, Form]:
    """Returns the common forms of the items of two containers of one kind, of which one may be Uninitialized."""
    known = [value for value in pair if not isinstance(value, Uninitialized)]
    names = [name for value in known if isinstance(value, Instance) for name in value.names()]
    contents = [content(value, names) for value in known]
    if contents[0].keys() != contents[-1].keys():
        sizes = " and ".join(str(len(items)) for items in contents)
        raise MergeError(f"a variable is a list or dict whose length depends on data (it has {sizes} items)")
    one, other = (value if isinstance(value, Uninitialized) else content(value, names) for value in pair)
    return {key: merge(_item(one, key), _item(other, key), regions) for key in contents[0]}


def _item(items: Any, key: Any) -> Any:
    return items if isinstance(items, Uninitialized) else items[key]


def _container_kind(value: Any) -> type | None:
    is_module = isinstance(value, Instance) and value.module is not None
    return next((kind for kind in (tuple, list, dict, Instance) if isinstance(value, kind) and not is_module), None)


def _described(value: Any) -> str:
    return "a tensor" if isinstance(value, (torch.Tensor, ScalarTensor)) else f"{type(value).__name__} {value}"
