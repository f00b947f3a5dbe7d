"""Values of a TorchScript program for which Python has no type: 0-d tensors of numbers, objects, unused variables.

All other values are Python's: numbers (or torch's symbolic numbers), strings, lists, dicts, tuples and named tuples. A
dtype, a layout and a memory format are numbers, as in TorchScript.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fx_onnx.messages.errors import CaptureError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.sizes.symbolic_sizes import expression, is_data_dependent
from fx_onnx.torch_internals.torch_private import statically_known_true

__all__ = [
    "CONTAINERS", "DTYPES", "LAYOUTS", "MEMORY_FORMATS", "Appended", "Instance", "ScalarTensor", "StoredConstant",
    "Uninitialized", "argument_value", "as_tensor", "content", "described", "is_unchanged", "known_bool",
    "like", "number_dtype", "number_of", "parameters", "rebuild", "replace_content", "result_value",
]  # fmt: skip

# c10::ScalarType, c10::Layout and c10::MemoryFormat, by number.
DTYPES: tuple[torch.dtype, ...] = (
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64,
    torch.complex32, torch.complex64, torch.complex128, torch.bool, torch.qint8, torch.quint8, torch.qint32,
    torch.bfloat16, torch.quint4x2, torch.quint2x4,
)  # fmt: skip
LAYOUTS: tuple[torch.layout, ...] = (torch.strided, torch.sparse_coo, torch.sparse_csr)
MEMORY_FORMATS: tuple[torch.memory_format, ...] = (
    torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d,
)  # fmt: skip


# The Python numbers that are tensors of a dtype; a bool is an int too.
_NUMBERS: dict[torch.dtype, tuple[type, ...]] = {
    torch.bool: (bool, torch.SymBool),
    torch.int64: (int, torch.SymInt),
    torch.float64: (float, torch.SymFloat),
}


@dataclass(eq=False)
class ScalarTensor:
    """A 0-d tensor whose value is a number, such as a size in a traced model.

    Sizes stay symbolic in it: a traced model computes ``x.shape[0] // 2`` on 0-d tensors.

    Attributes:
        number: The value, which may be symbolic.
        dtype: The dtype of the tensor.
        tensor: The tensor, once an operator has written to it; ``number`` is outdated then.
    """

    number: Any
    dtype: torch.dtype
    tensor: torch.Tensor | None = None

    def as_tensor(self) -> torch.Tensor:
        """Returns the value as a tensor."""
        return torch.scalar_tensor(self.number, dtype=self.dtype) if self.tensor is None else self.tensor


@dataclass(eq=False)
class Instance:
    """An object of a TorchScript class, or a module as the forward sees it.

    Attributes:
        read: Reads an attribute that the forward has neither read nor assigned; None for an object that the forward
            creates.
        module: The ScriptedModule; None for an object of a class.
        attributes: The attributes that the forward has read or assigned.
        original: The object that this one is a copy of.
    """

    read: Callable[[str], Any] | None = None
    module: Any = None
    attributes: dict[str, Any] = field(default_factory=dict)
    original: Instance | None = None

    def get(self, name: str) -> Any:
        """Returns an attribute."""
        if name not in self.attributes and self.read is not None:
            self.attributes[name] = self.read(name)
        return self.attributes[name]

    def names(self) -> dict[str, Any]:
        """Returns the names of all attributes of an object as keys; those that the forward uses of a module."""
        unread = self.original.names() if self.original is not None and self.module is None else {}
        return {**unread, **self.attributes}


@dataclass(frozen=True)
class StoredConstant:
    """A tensor constant of a graph, which is a buffer of a module."""

    module: Any
    name: str


@dataclass(eq=False)
class Appended:
    """The tensors that a loop has appended to a list, as one item of the list.

    Attributes:
        stacked: The tensors, stacked along axis 0.
    """

    stacked: torch.Tensor


class Uninitialized:
    """The value of a variable that TorchScript knows to be unused, for example after a loop that always returns."""


def number_of(value: Any) -> Any:
    """Returns a 0-d tensor as a number, which is symbolic if the value depends on data, and a number as it is."""
    if isinstance(value, ScalarTensor):
        value = value.number if value.tensor is None else value.tensor
    return value.item() if isinstance(value, torch.Tensor) else value


def number_dtype(value: Any) -> torch.dtype | None:
    """Returns the dtype of a Python number as a tensor; None for any other value."""
    return next((dtype for dtype, classes in _NUMBERS.items() if isinstance(value, classes)), None)


def known_bool(condition: Any) -> bool | None:
    """Returns the value of a condition, or None if it depends on data.

    A condition on sizes is decided by the sizes of the example, and torch records a guard.
    """
    if not isinstance(condition, torch.SymBool) or not is_data_dependent(expression(condition)):
        return bool(condition)
    if statically_known_true(condition):
        return True
    return False if statically_known_true(torch.sym_not(condition)) else None


def as_tensor(value: Any) -> Any:
    """Returns a ScalarTensor as a tensor, and any other value as it is."""
    return value.as_tensor() if isinstance(value, ScalarTensor) else value


# --- containers -------------------------------------------------------------------------------------------------------

# The values whose content a program can change, beside tensors.
CONTAINERS = (list, dict, Instance, ScalarTensor)


def content(container: Any, names: Iterable[str] = ()) -> dict[Any, Any]:
    """Returns the items of a container by key.

    Args:
        container: A list, tuple, dict, object or ScalarTensor; a tensor is its own only item.
        names: The attributes of a module to read, beside those that the forward has read or assigned.
    """
    if isinstance(container, torch.Tensor):
        return {0: container}
    if isinstance(container, Instance):
        return {name: container.get(name) for name in {**container.names(), **dict.fromkeys(names)}}
    if isinstance(container, ScalarTensor):
        return dict(vars(container))
    return dict(container) if isinstance(container, dict) else dict(enumerate(container))


def replace_content(container: Any, items: Mapping[Any, Any]) -> None:
    """Replaces the items of a container, which have the keys of ``content``; attributes that are not given stay."""
    if isinstance(container, torch.Tensor):
        container.copy_(items[0])
    elif isinstance(container, list):
        container[:] = items.values()
    elif isinstance(container, dict):
        container.clear()
        container.update(items)
    else:
        attributes = container.attributes if isinstance(container, Instance) else vars(container)
        attributes.update(items)


def like(container: Any, items: dict[Any, Any]) -> Any:
    """Returns a new list, tuple, dict or object of the kind of ``container`` with other items."""
    if isinstance(container, dict):
        return items
    if isinstance(container, Instance):
        return Instance(attributes=items)
    values = list(items.values())
    if isinstance(container, tuple):
        return type(container)(*values) if hasattr(container, "_fields") else tuple(values)
    return values


def rebuild(value: Any, leaf: Callable[[Any], Any], memo: dict[int, tuple[Any, Any]]) -> Any:
    """Returns a copy of a value: containers are new, and their leaves are the results of ``leaf``.

    The attributes of an object are copied when they are read.

    Args:
        value: The value.
        leaf: Called for tensors, numbers and all other values that are no containers.
        memo: The (original, copy) pairs of mutable containers by the ids of both, so that two references to one list
            stay references to one list.
    """
    if isinstance(value, tuple):
        return like(value, {key: rebuild(item, leaf, memo) for key, item in content(value).items()})
    if not isinstance(value, CONTAINERS):
        return leaf(value)
    if id(value) not in memo:
        copy: Any
        if isinstance(value, Instance):
            copy = Instance(lambda name: rebuild(value.get(name), leaf, memo), value.module, original=value)
        else:
            copy = ScalarTensor(0, value.dtype) if isinstance(value, ScalarTensor) else type(value)()
        memo[id(value)] = memo[id(copy)] = value, copy
        if not isinstance(value, Instance):
            replace_content(copy, {key: rebuild(item, leaf, memo) for key, item in content(value).items()})
    return memo[id(value)][1]


# --- the arguments, the results and the attributes of a program, as Python passes and returns them --------------------


def parameters(arguments: Sequence[Any]) -> list[inspect.Parameter]:
    """Returns the arguments of a schema as parameters of a Python function, in order.

    torch.jit.trace may give several tensors of ``*args`` one name.
    """
    made: dict[str, inspect.Parameter] = {}
    for number, argument in enumerate(arguments):
        kind = inspect.Parameter.KEYWORD_ONLY if argument.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        default = argument.default_value if argument.has_default_value() else inspect.Parameter.empty
        name = f"{argument.name}_{number}" if argument.name in made else argument.name
        made[name] = inspect.Parameter(name, kind, default=default)
    return list(made.values())


def argument_value(value: Any, kind: Any) -> Any:
    """Returns an argument of the forward as TorchScript passes it."""
    name = kind.kind()
    if name == "OptionalType":
        return None if value is None else argument_value(value, kind.getElementType())
    if name in ("IntType", "FloatType", "BoolType") and isinstance(value, torch.Tensor):
        return number_of(value)  # TorchScript takes the number of a 0-d tensor
    if name == "FloatType" and isinstance(value, int):
        return float(value)
    if name == "IntType" and isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return next(codes.index(value) for codes in (DTYPES, LAYOUTS, MEMORY_FORMATS) if value in codes)
    if name == "DeviceObjType":
        return torch.device(value)
    if name == "ListType":
        return [argument_value(item, kind.getElementType()) for item in value]
    if name == "TupleType" and isinstance(value, (tuple, list)):
        return tuple(argument_value(item, element) for item, element in zip(value, kind.elements(), strict=True))
    return value


def result_value(value: Any) -> Any:
    """Returns a result with its ScalarTensors as tensors."""
    if isinstance(value, Appended):
        raise CaptureError(
            "The model returns a list whose length depends on data, which an ONNX model cannot do; return torch.stack.",
            id=MessageId.TORCHSCRIPT,
        )
    if not isinstance(value, (list, tuple, dict)):
        return as_tensor(value)
    return like(value, {key: result_value(item) for key, item in content(value).items()})


def is_unchanged(before: Any, after: Any) -> bool:
    """Returns whether a value is unchanged."""
    if before is after or type(before) is not type(after) or isinstance(before, torch.Tensor):
        return before is after
    if not isinstance(before, (tuple, *CONTAINERS)):
        return bool(before == after)
    new = content(after)
    old = content(before, new if isinstance(after, Instance) else ())
    return old.keys() == new.keys() and all(is_unchanged(old[key], item) for key, item in new.items())


def described(value: Any) -> str:
    """Returns a value of an attribute as text for a message."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of {str(value.dtype).removeprefix('torch.')} with shape {tuple(value.shape)}"
    if isinstance(value, Instance):
        return f"an object with {', '.join(f'{name} = {described(attr)}' for name, attr in value.attributes.items())}"
    return f"{type(value).__name__} of length {len(value)}" if isinstance(value, (list, dict, tuple)) else repr(value)
