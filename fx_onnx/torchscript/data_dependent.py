"""Captures branches and loops that depend on data with torch's higher-order operators ``cond`` and ``while_loop``.

torch's operators call a body with tensors, and the body may read nothing else. A Region is one run of a body. A body is
run twice or more: first without recording, to learn what it reads, changes and returns, then as a function of exactly
the tensors that it reads. What it changes outside (lists, objects, modules, tensors that it writes to in place) is
returned by the function, and applied after the branch or the loop.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from fx_onnx.messages.errors import CaptureError
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.sizes.symbolic_sizes import expression, is_data_dependent
from fx_onnx.torch_internals.torch_private import statically_known_true, storage_id, unrecorded
from fx_onnx.torchscript.script_graph import Block, Operation, is_only_appended_to
from fx_onnx.torchscript.script_values import (
    CONTAINERS,
    Appended,
    Instance,
    ScalarTensor,
    Uninitialized,
    as_tensor,
    content,
    like,
    number_dtype,
    rebuild,
    replace_content,
)

if TYPE_CHECKING:
    from fx_onnx.torchscript.script_interpreter import Interpreter

__all__ = [
    "Branch", "Computed", "Known", "Loop", "MergeError", "Region", "ScriptRaise", "build", "flatten", "leaves", "merge",
]  # fmt: skip

_ENDLESS = sys.maxsize  # TorchScript's count of a loop without a limit
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


# --- branches and loops -----------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Change:
    """What a branch or a loop does to an outer value.

    Attributes:
        owner: A container, or a tensor.
        forms: The forms of its items by key.
        is_appended: Whether the change is one item at the end of a list to which a body only appends.
    """

    owner: Any
    forms: dict[Any, Any]
    is_appended: bool = False

    def items(self, region: Region | None) -> dict[Any, Any]:
        """Returns the items that have forms as a region sees them; None is the code outside."""
        view = self.owner if region is None else region.enter(self.owner)
        if not self.is_appended:
            return content(view, self.forms)
        is_longer = len(view) > len(self.owner)
        return {0: view[len(self.owner)] if is_longer else Uninitialized()}


class _DataDependent:
    """A branch or a loop as functions of the tensors and numbers that its blocks read outside.

    Args:
        interpreter: The interpreter.
        operation: The branch or the loop.
        values: The outer values by number.
        results: The outer list whose items the results of a block replace. The carried values of an iteration are
            among them.
    """

    def __init__(
        self, interpreter: Interpreter, operation: Operation, values: Mapping[int, Any], results: list[Any]
    ) -> None:
        self._interpreter = interpreter
        self._operation = operation
        self._values = values
        self._results = results
        self._changes: list[Change] = []
        self._read: dict[Any, Any] = {}

    @contextmanager
    def _discovering(self) -> Iterator[None]:
        """Runs operators without recording them, and turns a MergeError into the error of the export."""
        try:
            with unrecorded():
                yield
        except MergeError as error:
            kind = "branch" if self._operation.kind == "prim::If" else "loop"
            raise CaptureError(
                f"A {kind} that depends on data cannot be exported{self._operation.source}: {error}; let every "
                "variable keep its type, shape and length.",
                id=MessageId.TORCHSCRIPT,
            ) from error

    def _run_block(self, block: Block, region: Region, arguments: Sequence[Any] = ()) -> None:
        """Runs a block in a region; an iteration takes the carried values from the results before it."""
        results = region.enter(self._results)
        carried = results[1:] if arguments else []
        outer = {number: region.enter(self._values[number]) for number in sorted(block.free)}
        results[:] = self._interpreter.run(block, [*arguments, *carried], outer, region)

    def _find_changes(self, regions: Sequence[Region]) -> None:
        """Learns from two runs, or from none and one, what the blocks read and what they do to the outer values."""
        self._changes = []
        for owner in {id(owner): owner for region in regions for owner in region.mutable()}.values():
            if isinstance(owner, torch.Tensor):  # computed in any case
                change = Change(owner, {0: Computed(owner)})
            elif self._is_appended(owner, regions[1]):
                change = Change(owner, {0: Computed(regions[1].enter(owner)[-1])}, is_appended=True)
            else:
                change = Change(owner, merge_items([region.enter(owner) for region in regions], regions))
            self._changes.append(change)
        self._read = {key: value for region in regions for key, value in region.read.items()}

    def _is_appended(self, owner: Any, region: Region) -> bool:
        """Returns whether an iteration does nothing with a list but append one tensor to it."""
        inner = region.enter(owner)
        if self._operation.kind != "prim::Loop" or not isinstance(owner, list) or len(inner) != len(owner) + 1:
            return False
        (block,) = self._operation.blocks
        numbers = {number for number in block.free if self._values[number] is owner}
        is_item = any(item is inner for other in region.mutable() for item in content(region.enter(other)).values())
        is_tensor = isinstance(inner[-1], torch.Tensor)
        return is_tensor and bool(numbers) and not is_item and is_only_appended_to(block, numbers)

    def _operands(self) -> tuple[Any, ...]:
        """Returns what the blocks read as operands of a higher-order operator, which are tensors and integers."""
        return tuple(map(_as_operand, self._read.values()))

    def _region(self, operands: Sequence[Any]) -> Region:
        """Returns a region that reads operands: numbers where they were numbers, and copies where it writes."""
        written = {id(change.owner) for change in self._changes}
        given = {}
        for (key, value), operand in zip(self._read.items(), operands, strict=True):
            is_number = isinstance(value, (torch.SymFloat, torch.SymBool))
            given[key] = operand.item() if is_number else operand.clone() if key in written else operand
        return Region(given)

    @property
    def _forms(self) -> list[Any]:
        return [change.forms for change in self._changes]

    def _flatten(self, region: Region | None = None) -> list[torch.Tensor]:
        """Returns the tensors of what changes, as a region sees it, in the order of ``leaves``."""
        return flatten(self._forms, [change.items(region) for change in self._changes])

    def _apply(self, tensors: Iterable[torch.Tensor], region: Region | None = None) -> None:
        """Replaces what changes, as a region sees it, by values made of tensors."""
        known: Callable[[Any], Any] = (lambda value: value) if region is None else region.enter
        contents = build(self._forms, iter(tensors), known)
        for change, items in zip(self._changes, contents, strict=True):
            if not change.is_appended:
                replace_content(known(change.owner), items)


def _as_operand(value: Any) -> Any:
    dtypes: dict[Any, torch.dtype] = {torch.SymFloat: torch.float64, torch.SymBool: torch.bool}
    if type(value) in dtypes:
        return torch.scalar_tensor(value, dtype=dtypes[type(value)])
    # Without a gradient, because torch would capture the backward pass too.
    return value.detach() if isinstance(value, torch.Tensor) and value.requires_grad else value


class Branch(_DataDependent):
    """A ``prim::If`` with a condition that depends on data."""

    def run(self, condition: Any) -> Sequence[Any]:
        """Runs the branches, and returns the results.

        A branch that raises an exception is left out with a warning, because an ONNX model cannot raise one.

        Raises:
            CaptureError: The values that the branches return or assign have no common form.
            ScriptRaise: Both branches raise.
        """
        runs: dict[Block, Region] = {}
        raised = None
        for block in self._operation.blocks:
            region = Region()
            try:
                with self._discovering():
                    self._run_block(block, region)
                runs[block] = region
            except ScriptRaise as error:
                raised = error
        if raised is not None:
            if not runs:
                raise raised
            text = "The model raises an exception if a condition on data holds, and the exported model does not"
            warn(f"{text}: {raised}; check the data before you run it.", MessageId.EXCEPTION_ON_DATA)
            return self._interpreter.run(next(iter(runs)), (), self._values)
        with self._discovering():
            self._find_changes(list(runs.values()))
        tensors: Sequence[torch.Tensor] = ()
        if leaves(self._forms):
            tensors = torch.ops.higher_order.cond(condition, *map(self._function, runs), self._operands())
        self._apply(tensors)
        return self._results

    def _function(self, block: Block) -> Callable[..., Any]:
        def function(*operands: Any) -> tuple[torch.Tensor, ...]:
            region = self._region(operands)
            self._run_block(block, region)
            return tuple(self._flatten(region))

        return function


class Loop(_DataDependent):
    """The iterations of ``prim::Loop`` that a loop of the program computes.

    The results are the condition and the carried values.
    """

    def run(self, done: int, count: Any) -> Sequence[Any]:
        """Runs the iterations from number ``done`` on as a ``while_loop``; returns the carried values."""
        initial = (torch.scalar_tensor(done, dtype=torch.int64), *(tensor.detach() for tensor in self._flatten()))
        is_counted = not (isinstance(count, int) and count == _ENDLESS)
        may_end = isinstance(self._changes[0].forms[0], Computed)  # the results are what the regions enter first
        if not is_counted and not may_end:
            source = self._operation.source
            raise CaptureError(f"The model has a loop that never ends{source}.", id=MessageId.TORCHSCRIPT)

        def more(*tensors: Any) -> torch.Tensor:
            region = self._region(tensors[len(initial) :])
            conditions = [tensors[0] < region.enter(count)] if is_counted else []
            conditions += [torch.as_tensor(tensors[1])] if may_end else []
            return conditions[0] if len(conditions) == 1 else torch.logical_and(*conditions)

        def body(*tensors: Any) -> tuple[torch.Tensor, ...]:
            region = self._region(tensors[len(initial) :])
            # The body may write to a carried tensor in place.
            self._apply([tensor.clone() for tensor in tensors[1 : len(initial)]], region)
            self._iterate(region, tensors[0].item())
            return (tensors[0] + 1, *self._flatten(region))

        if any(change.is_appended for change in self._changes):
            rows = torch.ops.higher_order.while_loop_stack_output(more, body, initial, self._operands())
            results = [row.select(0, -1) for row in rows]
            self._append_rows(rows[1:], (results[0] - done).item())
        else:
            results = torch.ops.higher_order.while_loop(more, body, initial, self._operands())
        self._apply(results[1:])
        return self._results[1:]

    def find_state(self, count: Any) -> None:
        """Runs the body without recording until it is known what the iterations change.

        Raises:
            CaptureError: A carried value has another form after an iteration.
        """
        known = None
        with self._discovering():
            while known != (known := self._shape()):
                before, after = Region(), Region()
                for region in (before, after):
                    region.enter((self._results, count))
                    self._apply([leaf.example.clone() for leaf in leaves(self._forms)], region)
                self._iterate(after, torch.empty((), dtype=torch.int64).item())
                self._find_changes([before, after])
            for pair in zip(self._flatten(before), self._flatten(after), strict=True):
                _check_metadata(*pair)

    def _shape(self) -> Any:
        kinds = {id(change.owner): [leaf.is_number for leaf in leaves(change.forms)] for change in self._changes}
        return {owner: kind for owner, kind in kinds.items() if kind}

    def _iterate(self, region: Region, number: Any) -> None:
        torch._check(number >= 0)
        self._run_block(self._operation.blocks[0], region, [number])

    def _append_rows(self, stacked: Sequence[torch.Tensor], count: Any) -> None:
        """Appends to each list what the iterations appended; without an iteration, torch returns one row too many."""
        torch._check(count >= 0)
        rows = iter(stacked)
        for change in self._changes:
            tensors = [next(rows) for _ in leaves(change.forms)]
            if change.is_appended:
                torch._check(count <= tensors[0].size(0))
                change.owner.append(Appended(tensors[0].narrow(0, 0, count)))


def _check_metadata(old: torch.Tensor, new: torch.Tensor) -> None:
    """Raises a MergeError if an iteration changes the dtype or the shape of a tensor."""
    if old.dtype != new.dtype:
        raise MergeError(f"an iteration changes the dtype of a tensor from {old.dtype} to {new.dtype}")
    if old.dim() != new.dim() or not all(map(_may_be_equal, old.shape, new.shape)):
        raise MergeError("an iteration changes the shape of a tensor")


def _may_be_equal(a: Any, b: Any) -> bool:
    """Returns whether two sizes are equal, or whether torch has to decide, because one depends on data."""
    return any(is_data_dependent(expression(size)) for size in (a, b)) or statically_known_true(a == b)
