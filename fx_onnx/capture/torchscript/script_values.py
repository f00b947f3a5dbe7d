"""Values of a TorchScript program for which Python has no type: 0-d tensors of numbers, objects, unused variables.

All other values are Python's: numbers (or torch's symbolic numbers), strings, lists, dicts, tuples and named tuples. A
dtype, a layout and a memory format are numbers, as in TorchScript.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from fx_onnx.core.symbolic_sizes import expression, is_data_dependent
from fx_onnx.core.torch_private import statically_known_true

__all__ = [
    "DTYPES",
    "LAYOUTS",
    "MEMORY_FORMATS",
    "Instance",
    "ScalarTensor",
    "StoredConstant",
    "Uninitialized",
    "dtype_code",
    "known_bool",
    "number_of",
    "rebuild",
]

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


def dtype_code(dtype: torch.dtype) -> int:
    """Returns the number that TorchScript uses for a dtype."""
    return DTYPES.index(dtype)


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
    """An object of a TorchScript class.

    Attributes:
        read: Reads an attribute of the object that the module holds; None for an object that the forward creates.
        attributes: The attributes that the forward has read or assigned.
    """

    read: Callable[[str], Any] | None = None
    attributes: dict[str, Any] = field(default_factory=dict)

    def get(self, name: str) -> Any:
        """Returns an attribute."""
        if name not in self.attributes and self.read is not None:
            self.attributes[name] = self.read(name)
        return self.attributes[name]


@dataclass(frozen=True)
class StoredConstant:
    """A tensor constant of a graph, which is a buffer of a module."""

    module: Any
    name: str


class Uninitialized:
    """The value of a variable that TorchScript knows to be unused, for example after a loop that always returns.

    Attributes:
        kind: The kind of the variable's type, such as ``TensorType``.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind


def number_of(value: Any) -> Any:
    """Returns a 0-d tensor as a number, which is symbolic if the value depends on data, and a number as it is."""
    if isinstance(value, ScalarTensor) and value.tensor is None:
        return value.number
    if isinstance(value, ScalarTensor):
        value = value.tensor
    return value.item() if isinstance(value, torch.Tensor) else value


def known_bool(condition: Any) -> bool | None:
    """Returns the value of a condition, or None if it depends on data.

    A condition on sizes is decided by the sizes of the example, and torch records a guard.
    """
    if not isinstance(condition, torch.SymBool):
        return bool(condition)
    if not is_data_dependent(expression(condition)):
        return bool(condition)
    if statically_known_true(condition):
        return True
    return False if statically_known_true(torch.sym_not(condition)) else None


def rebuild(value: Any, leaf: Callable[[Any], Any], memo: dict[int, tuple[Any, Any]]) -> Any:
    """Returns a copy of a value: containers and objects are new, and their leaves are the results of ``leaf``.

    Args:
        value: The value.
        leaf: Called for tensors, numbers and all other values that are no containers.
        memo: The (original, copy) pairs of mutable containers by the id of the original, so that two references to one
            list stay references to one list.
    """
    if isinstance(value, tuple):
        items = [rebuild(item, leaf, memo) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if not isinstance(value, (list, dict, Instance, ScalarTensor)):
        return leaf(value)
    if id(value) in memo:
        return memo[id(value)][1]
    copy: Any
    if isinstance(value, ScalarTensor):
        copy = ScalarTensor(leaf(value.number), value.dtype, None if value.tensor is None else leaf(value.tensor))
    elif isinstance(value, Instance):
        copy = Instance(value.read)
    else:
        copy = type(value)()
    memo[id(value)] = (value, copy)
    if isinstance(value, list):
        copy.extend(rebuild(item, leaf, memo) for item in value)
    elif isinstance(value, dict):
        copy.update((key, rebuild(item, leaf, memo)) for key, item in value.items())
    elif isinstance(value, Instance):
        copy.attributes.update((key, rebuild(item, leaf, memo)) for key, item in value.attributes.items())
    return copy
