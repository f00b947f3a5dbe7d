"""Gives the results of operators numbers: equal operators on equally numbered arguments have equal numbers.

This is global value numbering. An operator that only moves data, such as ``contiguous``, keeps the number of its
argument, so a branch on the layout of a tensor makes no difference.
"""

from __future__ import annotations

import itertools
import sys
import traceback
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any, NamedTuple

import sympy
import torch

from fx_onnx.capture.proof.run_modes import Undecidable
from fx_onnx.messages.source_lines import innermost_line
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_differences import shape_kernel
from fx_onnx.torch_internals.torch_private import (
    FakeTensor,
    OpOverload,
    TorchDispatchMode,
    pytree,
    storage_id,
    symbolic_expression,
    unset_fake_temporarily,
    without_function_modes,
)

__all__ = ["ValueNumbers"]

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_MOVES = frozenset({
    "clone", "contiguous", "lift_fresh", "lift_fresh_copy", "detach", "alias", "_to_copy", "to", "expand", "slice",
    "select", "view", "_unsafe_view", "reshape", "_reshape_alias", "unsqueeze", "squeeze", "flatten", "unflatten",
    "sum", "mean", "prod", "amax", "amin",
})  # fmt: skip
"""Operators whose results have the elements of their first argument in the same order, if they have as many.

Among them are reductions, which then reduce axes of size 1 only.
"""
_BROADCASTS = frozenset({"copy_", "index_put_"})
"""Operators whose last argument but one is a tensor that broadcasts to the elements that they write."""
_FILLS = frozenset({"fill_", "copy_"})
_COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum", "eq", "ne", "logical_and", "logical_or"})
"""Operators whose result does not depend on the order of two tensors."""
_META = torch.device("meta")
_NEEDS_VALUES = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_LISTS: tuple[type[Any], ...] = (list, tuple, type({}.values()))
_SMALL = 4096
"""The number of elements up to which constants are compared by their values; larger ones are compared by memory."""


class ValueNumbers(TorchDispatchMode):
    """Numbers the data of the tensors that operators compute within the mode.

    A write in place changes the version of a memory, which is part of the number of each tensor in it.
    """

    supports_higher_order_operators = True

    def __init__(self, on_meta: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._on_meta = on_meta
        self._copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # the copies on the meta device
        self._results: dict[Hashable, Any] = {}  # of a call on the meta device
        self._numbers: dict[Hashable, int] = {}
        self._tensors: dict[int, tuple[torch.Tensor, int]] = {}  # keeps the tensors, so that each id stays unique
        self._places: dict[Hashable, int] = {}  # the number of the first view of these elements of a memory
        self._scalars: dict[int, Any] = {}  # the value of each number of a tensor that has one value, which is known
        self.versions: dict[int, int] = {}
        self._given = set[int]()  # the memories of tensors that no operator has made
        self.conditions: list[Hashable] = []  # what chooses the branches of the run, in its order
        self._symbols: dict[Any, Any] = {}  # the symbols of sizes that depend on data, by those of another run
        self._draws = self._call = 0
        self._branch = True
        self._chosen: Callable[[int], int] | None = None
        self._last: tuple[_Schema, list[Any]] | None = None  # the call that has not returned
        self.known: int | None = None
        self.line = ""
        self.made: dict[str, int] = {}  # the order of the symbols of sizes that depend on data, by name

    def begin(
        self, chosen: Callable[[int], int] | None = None, call: int = 0, branch: bool = True, continues: bool = False
    ) -> None:
        """Begins a run: takes the sizes that depend on data, by order, and a branch of conditions.

        Runs of one call draw the same random numbers. What the run before wrote is forgotten, or in a run that
        continues it, what it wrote into tensors that no operator has made.
        """
        self._draws, self._chosen, self._call, self._last = 0, chosen, call, None
        self.versions = {
            memory: version for memory, version in self.versions.items() if continues and memory not in self._given
        }
        self.conditions, self._branch = [], branch

    @property
    def refuses_empty(self) -> bool:
        """Whether an operator has raised an exception for a tensor without elements, as those for numbers may not do.

        Views, and the shapes of several tensors, are checked alike on each device.
        """
        schema, given = self._last or (None, [])
        tensors = [leaf for leaf in given if isinstance(leaf, torch.Tensor)]
        return schema is not None and not schema.may_view and len(tensors) == 1 and _is_empty(tensors[0])

    def find_line(self) -> None:
        """Makes ``line`` the line of the user's code that first computes what has no number yet."""
        self.known = len(self._numbers)

    def number(self, *expression: Hashable) -> int:
        """Returns the number of an expression."""
        return self._numbers.setdefault(expression, len(self._numbers))

    def define(self, tensor: torch.Tensor, number: int) -> None:
        """Gives the data of a tensor a number."""
        self._tensors[id(tensor)] = tensor, number

    def _elements(self, tensor: torch.Tensor) -> Hashable:
        """Returns which elements of a memory a tensor has, in their order; axes of size 1 do not count."""
        shape, stride = self._sizes(tensor.shape), self._sizes(tensor.stride())
        axes = [axis for axis in zip(shape, stride, strict=True) if axis[0] != 1]
        return storage_id(tensor), tensor.dtype, self._size(tensor.storage_offset()), *axes

    def read(self, value: Any) -> Hashable:
        """Returns what identifies a value: the number and the shape of a tensor, or the text of another value."""
        if isinstance(value, torch.Tensor):
            return (*self._data(value), *self._sizes(value.shape))
        return (type(value), self._size(value) if isinstance(value, _SYMBOLIC) else str(value))

    def _size(self, size: Any) -> Hashable:
        """Returns a number, or the text of an expression over the numbers of symbols that depend on data."""
        return str(symbolic_expression(size).xreplace(self._symbols)) if isinstance(size, _SYMBOLIC) else size

    def _sizes(self, sizes: Iterable[Any]) -> Iterable[Hashable]:
        return sizes if self._on_meta else [self._size(size) for size in sizes]

    def _define_symbols(self, number: int, sizes: Iterable[Any]) -> None:
        """Numbers the symbols that an operator makes, such as the number of rows that ``nonzero`` finds."""
        for index, size in enumerate(sizes):
            for symbol in symbolic_expression(size).free_symbols if isinstance(size, _SYMBOLIC) else ():
                if symbol not in self._symbols:
                    self._symbols[symbol] = sympy.Symbol(f"v{self.number('size', number, index)}")

    def _with_sizes(self, value: Any) -> Any:
        """Returns a result with the chosen sizes in place of the symbols that its operator makes."""
        if isinstance(value, torch.Tensor) and any(isinstance(size, torch.SymInt) for size in value.shape):
            return value.new_empty([self._with_sizes(size) for size in value.shape])
        if not isinstance(value, torch.SymInt) or self._chosen is None:
            return value
        names = symbolic_expression(value).xreplace(self._symbols)
        orders = {symbol: self.made.setdefault(str(symbol), len(self.made)) for symbol in names.free_symbols}
        return int(names.xreplace({symbol: self._chosen(order) for symbol, order in orders.items()}))

    def shape(self, value: Any) -> tuple[Any, ...]:
        """Returns the dtype and the shape of a tensor, or the type of another value."""
        if isinstance(value, torch.Tensor):
            return (value.dtype, *self._sizes(value.shape))
        return (type(value),)

    def result(self, value: Any) -> Hashable:
        """Returns what identifies a result: a tensor without elements has only a type and a shape."""
        return self.shape(value) if _is_empty(value) else self.read(value)

    def _data(self, tensor: torch.Tensor) -> tuple[int, int | None]:
        return self._own_number(tensor), self.versions.get(storage_id(tensor)) if self.versions else None

    def _own_number(self, tensor: torch.Tensor) -> int:
        if id(tensor) not in self._tensors:
            contents = _contents(tensor)
            self._given.add(storage_id(tensor))
            self.define(tensor, number := self.number("constant", str(tensor.dtype), contents))
            if not tensor.ndim and isinstance(contents, _Scalar):
                self._scalars[number] = contents.value
        return self._tensors[id(tensor)][1]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Calls the operator and numbers its results."""
        if func is torch.ops.higher_order.cond:
            self.conditions.append(self.read(args[0]))
            with self:
                return args[1 if self._branch else 2](*args[3])
        if not isinstance(func, OpOverload):
            raise Undecidable(str(func))
        with without_function_modes() if self._on_meta else nullcontext():  # they see each question for a shape
            return self._numbered_call(func, _schema(func), args, kwargs or {})

    def _numbered_call(self, func: OpOverload, schema: _Schema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._on_meta:
            if schema.needs_values:
                raise Undecidable(str(func))
            args, kwargs = self._moved(schema, args, kwargs)
        given = _arguments(schema, args, kwargs)
        leaves = _leaves(given)
        read = self._read_all(schema, leaves)
        self._last = schema, leaves
        result = self._called(func, schema, args, kwargs, leaves)
        self._last = None
        if schema.draws:
            self._draws += 1
            read = (*read, ("draw", self._call, self._draws))
        key = self.number(*(self._fill(schema, given) or (func, *read)))
        for tensor in _leaves([given[index] for index in schema.written]):
            if isinstance(tensor, torch.Tensor):
                memory = storage_id(tensor)
                self.versions[memory] = self.number("write", key, self.versions.get(memory))
        if self.known is not None and key >= self.known:
            self.known, self.line = None, innermost_line(traceback.extract_stack())
        return result if schema.is_mutable else self._numbered(schema, given, result, key)

    def _numbered(self, schema: _Schema, given: list[Any], result: Any, key: int) -> Any:
        """Numbers the results of a call, and returns them; those of sizes that depend on data have the chosen ones."""
        first = given[0] if given and isinstance(given[0], torch.Tensor) else None
        values = _leaves([result])
        numbers = [self.number(key, index) for index in range(len(values))]
        for number, value in () if self._on_meta else zip(numbers, values, strict=True):
            self._define_symbols(number, value.shape if isinstance(value, torch.Tensor) else [value])
        if schema.name == "scalar_tensor":
            self._scalars[numbers[0]] = given[0]
        if self._chosen is not None:
            values = _leaves([result := pytree.tree_map(self._with_sizes, result)])
        for number, value in zip(numbers, values, strict=True):
            if isinstance(value, torch.Tensor) and value is not first:
                self._define_result(schema, value, first, number)
        return result

    def _fill(self, schema: _Schema, given: list[Any]) -> tuple[Any, ...]:
        """Returns what identifies a write of one number, which has several forms; nothing for another call."""
        number = given[1] if schema.name in _FILLS else None
        if isinstance(number, torch.Tensor):
            number = self._scalars.get(self._own_number(number))
        if not isinstance(number, (int, float)):
            return ()
        return "fill", self.read(given[0]), str(int(number) if number == number // 1 else number)

    def _read_all(self, schema: _Schema, leaves: list[Any]) -> tuple[Any, ...]:
        """Returns what identifies the arguments of a call, in the same order for the same result."""
        read: tuple[Any, ...] = tuple(map(self.read, leaves))
        if schema.name in _COMMUTATIVE and read[2:] in ((), ((int, "1"),)):  # another alpha scales the second one
            return (*sorted(read[:2], key=repr), *read[2:])
        if schema.name in _BROADCASTS:  # Python drops the first axes of size 1 of a value that it assigns
            *before, (number, memory, *shape), last = read
            return (*before, (number, memory, *itertools.dropwhile(lambda size: size == 1, shape)), last)
        return read

    def _called(self, func: OpOverload, schema: _Schema, args: Any, kwargs: dict[str, Any], leaves: list[Any]) -> Any:
        """Calls an operator; on the meta device, the layouts of the arguments tell those of the results."""
        if self._on_meta and schema.writes_own_shape:
            return leaves[0]  # the meta kernel of some, such as hardswish_, computes all steps
        if not self._on_meta or schema.is_mutable or schema.may_view:
            return schema.kernel(*args, **kwargs)
        key = func, *map(_layout, leaves)
        if key not in self._results:
            self._results[key] = _SHAPES.get(func, schema.kernel)(*args, **kwargs)
        return _anew(self._results[key])

    def _moved(self, schema: _Schema, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Returns the arguments of a call on the meta device."""
        if schema.takes_device:
            kwargs = {**kwargs, "device": _META}
        for leaf in _leaves((args, kwargs.values())):
            if isinstance(leaf, torch.Tensor) and not leaf.is_meta:
                args, kwargs = pytree.tree_map_only(torch.Tensor, self.placed, (args, kwargs))
                break
        return args, kwargs

    def placed(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns a tensor that operators within the mode take: on the meta device, a copy that has its number."""
        if not self._on_meta or (tensor.is_meta and not isinstance(tensor, FakeTensor)):
            return tensor
        if id(tensor) not in self._copies:
            with unset_fake_temporarily():
                copy = _anew(tensor).requires_grad_(tensor.requires_grad)
            self._copies[id(tensor)] = tensor, copy
            self.define(copy, self._own_number(tensor))
            self._given.add(storage_id(copy))
        return self._copies[id(tensor)][1]

    def _define_result(self, schema: _Schema, result: torch.Tensor, given: torch.Tensor | None, number: int) -> None:
        """Numbers a result: a view has the number of its operator, or of the viewed tensor, without a version."""
        if given is None:
            self.define(result, number)
            return
        moves = schema.name in _MOVES and given.dtype == result.dtype
        if moves and (value := self._scalars.get(self._own_number(given))) is not None:
            self._scalars[number] = value
        shares = storage_id(given) == storage_id(result)
        if moves and self._size(given.numel()) == self._size(result.numel()):
            is_copy = not shares and storage_id(given) in self.versions
            number = self.number("copy", *self._data(given)) if is_copy else self._own_number(given)
        if shares and schema.may_view:
            self._places.setdefault(self._elements(given), self._own_number(given))
            number = self._places.setdefault(self._elements(result), number)
        self.define(result, number)


def _is_empty(value: Any) -> bool:
    """Returns whether a value is a tensor without elements; a size that depends on data is not 0."""
    return isinstance(value, torch.Tensor) and any(isinstance(size, int) and not size for size in value.shape)


def _anew(result: Any) -> Any:
    """Returns a result with new tensors on the meta device, which have the layouts of its tensors."""
    if isinstance(result, torch.Tensor):
        return torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device=_META)
    return type(result)(map(_anew, result)) if isinstance(result, (list, tuple)) else result


def _layout(value: Any) -> Hashable:
    """Returns the layout of a tensor, or what identifies another value."""
    is_tensor = isinstance(value, torch.Tensor)
    return (value.shape, value.stride(), value.dtype) if is_tensor else (type(value), str(value))


def _leaves(values: Iterable[Any]) -> list[Any]:
    """Returns the values, and those in lists among them."""
    found: list[Any] = []
    for value in values:
        found += _leaves(value) if isinstance(value, _LISTS) else (value,)
    return found


class _Schema(NamedTuple):
    """What the schema of an operator tells, read once because torch makes new objects of its parts each time."""

    name: str
    parameters: Sequence[tuple[str, Any]]  # with the defaults
    written: Sequence[int]  # the indices of the arguments that it writes into
    is_mutable: bool
    writes_own_shape: bool  # in place, into the only tensor, whose layout stays
    may_view: bool
    draws: bool  # random numbers
    needs_values: bool  # an index does for a mask only, which its kernel for meta tensors refuses
    takes_device: bool
    kernel: Callable[..., Any]


@cache
def _schema(func: OpOverload) -> _Schema:
    schema = func._schema
    arguments = schema.arguments
    tensors = sum("Tensor" in str(argument.type) for argument in arguments)
    is_in_place = schema.name.endswith("_") and torch.Tag.inplace_view not in func.tags
    return _Schema(
        schema.name.removeprefix("aten::"),
        [(argument.name, argument.default_value) for argument in arguments],
        [index for index, argument in enumerate(arguments) if argument.alias_info and argument.alias_info.is_write],
        schema.is_mutable,
        schema.is_mutable and tensors == 1 and is_in_place,
        bool(schema.returns) and schema.returns[0].alias_info is not None,
        torch.Tag.nondeterministic_seeded in func.tags,
        not _NEEDS_VALUES.isdisjoint(func.tags) and func._schema.name != "aten::index",
        any(argument.name == "device" for argument in arguments),
        shape_kernel(func),
    )


def _batch_norm(input: torch.Tensor, *given: Any) -> tuple[torch.Tensor, ...]:
    *channels, training, _, _ = given
    torch._check(all(values is None or values.numel() == input.shape[1] for values in channels))
    statistics = [input.new_empty(input.shape[1] if training else 0) for _ in range(2)]
    return torch.empty_like(input), *statistics


def _layer_norm(input: torch.Tensor, sizes: Sequence[int], *given: Any) -> tuple[torch.Tensor, ...]:
    outer = input.ndim - len(sizes)
    torch._check([*input.shape[outer:]] == [*sizes], lambda: f"the normalized axes of {[*input.shape]} are not {sizes}")
    statistics = [input.new_empty([*input.shape[:outer], *[1] * len(sizes)]) for _ in range(2)]
    return input.new_empty(input.shape), *statistics


_SHAPES: Mapping[Any, Callable[..., Any]] = {
    aten.native_batch_norm.default: _batch_norm,
    aten.native_layer_norm.default: _layer_norm,
}
"""What tells the shapes of an operator whose kernel for the meta device computes all steps in Python."""


def _arguments(schema: _Schema, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Returns the arguments of a call in the order of the schema, with the defaults of those that are not given.

    A slice without bounds has the same arguments as one with the bounds of its axis.
    """
    ordered = [*args, *(kwargs.get(name, default) for name, default in schema.parameters[len(args) :])]
    if schema.name == "slice":
        tensor, dim, start, end, *step = ordered
        size = tensor.shape[dim]
        ordered = [tensor, dim, start or 0, size if end is None or end == sys.maxsize else end, *step]
    return ordered


def _contents(tensor: torch.Tensor) -> Hashable:
    """Returns what identifies a tensor that no operator of a run has made."""
    if isinstance(tensor, FakeTensor) or tensor.is_meta or tensor.numel() > _SMALL:
        return ("memory", storage_id(tensor), tensor.storage_offset(), *tensor.stride())
    with unset_fake_temporarily(), torch.no_grad():
        values = tensor.tolist()
        return (str(tensor.dtype), *tensor.shape, str(values)) if tensor.ndim else _Scalar(str(tensor.dtype), values)


class _Scalar(NamedTuple):
    """The contents of a constant without axes."""

    dtype: str
    value: Any
