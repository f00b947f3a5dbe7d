"""Captures branches and loops that depend on data with torch's higher-order operators ``cond`` and ``while_loop``.

A body is run twice or more: first without recording, to learn what it reads, changes and returns, then as a
function of exactly the tensors that it reads. What it changes outside (lists, objects, modules, tensors that it writes
to in place) is returned by the function, and applied after the branch or the loop.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from fx_onnx.capture.torchscript.grown_list import is_only_appended_to
from fx_onnx.capture.torchscript.region import (
    Computed,
    MergeError,
    Region,
    ScriptRaise,
    build,
    flatten,
    leaves,
    merge_items,
)
from fx_onnx.capture.torchscript.script_graph import Block, Operation
from fx_onnx.capture.torchscript.script_values import Appended, Uninitialized, content, replace_content
from fx_onnx.core.errors import CaptureError
from fx_onnx.core.findings import warn
from fx_onnx.core.messages import MessageId
from fx_onnx.core.symbolic_sizes import expression, is_data_dependent
from fx_onnx.core.torch_private import statically_known_true, unrecorded

if TYPE_CHECKING:
    from fx_onnx.capture.torchscript.script_interpreter import Interpreter

__all__ = ["Loop", "branch"]

_ENDLESS = sys.maxsize  # TorchScript's count of a loop without a limit


@dataclass(eq=False)
class Body:
    """A branch, or an iteration of a loop, as a function of the outer values that it reads.

    Attributes:
        interpreter: The interpreter.
        operation: The branch or the loop.
        block: The block of the branch or loop.
        values: The outer values by number.
        results: The outer list whose items are replaced by the results of the block. An iteration begins with them.
    """

    interpreter: Interpreter
    operation: Operation
    block: Block
    values: Mapping[int, Any]
    results: list[Any]

    def run(self, region: Region, number: Any = None) -> None:
        """Runs the block in a region.

        Args:
            region: The region.
            number: The number of the iteration; None for a branch.
        """
        with self.interpreter.inside(region):
            results = region.enter(self.results)
            arguments = [] if number is None else [number, *results[1:]]
            outer = {number: region.enter(self.values[number]) for number in sorted(self.block.free)}
            results[:] = self.interpreter.run(self.block, arguments, outer)

    @contextmanager
    def discovering(self) -> Iterator[None]:
        """Runs operators without recording them, and turns a MergeError into the error of the export."""
        try:
            with unrecorded():
                yield
        except MergeError as error:
            kind = "branch" if self.operation.kind == "prim::If" else "loop"
            raise CaptureError(
                f"A {kind} that depends on data cannot be exported{self.operation.source}: {error}; let every "
                "variable keep its type, shape and length.",
                id=MessageId.TORCHSCRIPT,
            ) from error


@dataclass(eq=False)
class Change:
    """What a branch or a loop does to an outer value.

    Attributes:
        owner: A container, or a tensor.
        forms: The forms of its items by key.
        is_appended: Whether the change is one item at the end of a list to which a body only appends.
    """

    owner: Any
    forms: Mapping[Any, Any]
    is_appended: bool = False

    def leaves(self) -> list[Computed]:
        """Returns the tensors and numbers that the program computes, in order."""
        return [leaf for form in self.forms.values() for leaf in leaves(form)]

    def flatten(self, value: Any) -> list[torch.Tensor]:
        """Returns the tensors of the owner, or of a body's view of it, in the order of ``leaves``."""
        items = {0: _appended(self.owner, value)} if self.is_appended else content(value, self.forms)
        return [tensor for key, form in self.forms.items() for tensor in flatten(form, items[key])]

    def apply(self, region: Region | None, tensors: Iterator[torch.Tensor]) -> None:
        """Takes the new content of the owner, or of a region's view of it, from tensors."""
        known: Any = (lambda value: value) if region is None else region.enter
        items = {key: build(form, tensors, known) for key, form in self.forms.items()}
        if not self.is_appended:
            replace_content(known(self.owner), items)


def _appended(owner: list[Any], value: list[Any]) -> Any:
    """Returns the item that a body's view of a list has more than the list."""
    return value[len(owner)] if len(value) > len(owner) else Uninitialized("TensorType")


def _changes(body: Body, regions: Sequence[Region]) -> list[Change]:
    """Returns what two runs, or a run and none, do to the outer values."""
    changes = []
    for owner in {id(owner): owner for region in regions for owner in region.mutable()}.values():
        views = [region.enter(owner) for region in regions]
        if isinstance(owner, torch.Tensor):  # computed in any case
            changes.append(Change(owner, {0: Computed(owner)}))
        elif _is_appended(body, owner, regions[1]):
            changes.append(Change(owner, {0: Computed(_appended(owner, views[1]))}, is_appended=True))
        else:
            changes.append(Change(owner, merge_items(*views, regions)))
    return changes


def _is_appended(body: Body, owner: Any, region: Region) -> bool:
    """Returns whether an iteration does nothing with a list but append one tensor to it."""
    if body.operation.kind != "prim::Loop" or not isinstance(owner, list):
        return False
    inner = region.enter(owner)
    if len(inner) != len(owner) + 1 or not isinstance(inner[-1], torch.Tensor):
        return False
    numbers = {number for number in body.block.free if body.values[number] is owner}
    is_item = any(item is inner for other in region.mutable() for item in content(region.enter(other)).values())
    return bool(numbers) and not is_item and is_only_appended_to(body.block, numbers)


# --- branches ---------------------------------------------------------------------------------------------------------


def branch(interpreter: Interpreter, operation: Operation, condition: Any, values: Mapping[int, Any]) -> Sequence[Any]:
    """Runs ``prim::If`` with a condition that depends on data, and returns its results.

    A branch that raises an exception is left out with a warning, because an ONNX model cannot raise one.

    Raises:
        CaptureError: The values that the branches return or assign have no common form.
        ScriptRaise: Both branches raise.
    """
    results: list[Any] = [None] * len(operation.outputs)
    runs, raised = [], None
    for block in operation.blocks:
        body, region = Body(interpreter, operation, block, values, results), Region()
        try:
            with body.discovering():
                body.run(region)
            runs.append((body, region))
        except ScriptRaise as error:
            raised = error
    if raised is not None:
        if not runs:
            raise raised
        warn(
            f"The model raises an exception if a condition on data holds, and the exported model does not: {raised}.",
            MessageId.EXCEPTION_ON_DATA,
        )
        return interpreter.run(runs[0][0].block, (), values)
    with body.discovering():
        changes = _changes(body, [region for _, region in runs])
    operands = _Operands([region for _, region in runs], changes)
    tensors: Sequence[torch.Tensor] = ()
    if any(change.leaves() for change in changes):
        functions = [_branch_function(body, operands, changes) for body, _ in runs]
        tensors = torch.ops.higher_order.cond(condition, *functions, operands.values())
    _apply(changes, None, tensors)
    return results


def _branch_function(body: Body, operands: _Operands, changes: Sequence[Change]) -> Callable[..., Any]:
    def function(*given: Any) -> tuple[torch.Tensor, ...]:
        region = operands.region(given)
        body.run(region)
        return tuple(_flatten(changes, region))

    return function


def _apply(changes: Sequence[Change], region: Region | None, tensors: Sequence[torch.Tensor]) -> None:
    rest = iter(tensors)
    for change in changes:
        change.apply(region, rest)


def _flatten(changes: Sequence[Change], region: Region | None) -> list[torch.Tensor]:
    views = [change.owner if region is None else region.enter(change.owner) for change in changes]
    return [tensor for change, view in zip(changes, views, strict=True) for tensor in change.flatten(view)]


class _Operands:
    """The outer tensors and numbers that bodies read, as operands of a higher-order operator."""

    def __init__(self, regions: Sequence[Region], changes: Sequence[Change]) -> None:
        self._read = {key: value for region in regions for key, value in region.read.items()}
        self._written = {id(change.owner) for change in changes}

    def values(self) -> tuple[Any, ...]:
        """Returns the operands, which are tensors and integers."""
        return tuple(map(_as_operand, self._read.values()))

    def region(self, given: Sequence[Any]) -> Region:
        """Returns a region that reads operands: numbers where they were numbers, and copies where it writes."""
        inner = {}
        for (key, value), operand in zip(self._read.items(), given, strict=True):
            number = isinstance(value, (torch.SymFloat, torch.SymBool))
            inner[key] = operand.item() if number else operand.clone() if key in self._written else operand
        return Region(inner)


def _as_operand(value: Any) -> Any:
    dtypes: dict[Any, torch.dtype] = {torch.SymFloat: torch.float64, torch.SymBool: torch.bool}
    if type(value) in dtypes:
        return torch.scalar_tensor(value, dtype=dtypes[type(value)])
    # Without a gradient, because torch would capture the backward pass too.
    return value.detach() if isinstance(value, torch.Tensor) and value.requires_grad else value


# --- loops ------------------------------------------------------------------------------------------------------------


class Loop:
    """The iterations of ``prim::Loop`` that a loop of the program computes.

    The body is run without recording until it is known what the iterations change.

    Args:
        interpreter: The interpreter.
        operation: The loop.
        count: The largest number of iterations.
        state: The condition and the carried values before the iterations.
        values: The outer values by number.

    Raises:
        CaptureError: A carried value has another form after an iteration.
    """

    def __init__(
        self, interpreter: Interpreter, operation: Operation, count: Any, state: list[Any], values: Mapping[int, Any]
    ) -> None:
        self._count = count
        self._body = Body(interpreter, operation, operation.blocks[0], values, state)
        self._changes: list[Change] = []
        with self._body.discovering():
            while True:
                before, after = Region(), Region()
                for region in (before, after):
                    region.enter((count, state))
                    _apply(self._changes, region, [leaf.example.clone() for leaf in self._leaves()])
                self._iterate(after, torch.empty((), dtype=torch.int64).item())
                known = self._shape()
                self._changes = _changes(self._body, [before, after])
                if self._shape() == known:
                    break
            for pair in zip(*(_flatten(self._changes, region) for region in (before, after)), strict=True):
                _check_metadata(*pair)
        self._operands = _Operands([before, after], self._changes)

    def _leaves(self) -> list[Computed]:
        return [leaf for change in self._changes for leaf in change.leaves()]

    def _shape(self) -> Any:
        kinds = {id(change.owner): [leaf.is_number for leaf in change.leaves()] for change in self._changes}
        return {owner: kind for owner, kind in kinds.items() if kind}

    def _iterate(self, region: Region, number: Any) -> None:
        torch._check(number >= 0)
        self._body.run(region, number)

    def run(self, done: int) -> Sequence[Any]:
        """Runs the iterations from number ``done`` on as a ``while_loop``; returns the carried values."""
        count, operation = self._count, self._body.operation
        initial = [torch.scalar_tensor(done, dtype=torch.int64), *_flatten(self._changes, None)]
        is_counted = not (isinstance(count, int) and count == _ENDLESS)
        may_end = isinstance(self._changes[0].forms[0], Computed)  # the state is what the regions enter first
        if not is_counted and not may_end:
            raise CaptureError(f"The model has a loop that never ends{operation.source}.", id=MessageId.TORCHSCRIPT)

        def more(*tensors: Any) -> torch.Tensor:
            region = self._operands.region(tensors[len(initial) :])
            conditions = [tensors[0] < region.enter(count)] if is_counted else []
            conditions += [torch.as_tensor(tensors[1])] if may_end else []
            return conditions[0] if len(conditions) == 1 else torch.logical_and(*conditions)

        def body(*tensors: Any) -> tuple[torch.Tensor, ...]:
            region = self._operands.region(tensors[len(initial) :])
            # The body may write to a carried tensor in place.
            _apply(self._changes, region, [tensor.clone() for tensor in tensors[1 : len(initial)]])
            self._iterate(region, tensors[0].item())
            return (tensors[0] + 1, *_flatten(self._changes, region))

        tensors = tuple(tensor.detach() for tensor in initial)
        stacked: Sequence[torch.Tensor] = ()
        if any(change.is_appended for change in self._changes):
            stacked = torch.ops.higher_order.while_loop_stack_output(more, body, tensors, self._operands.values())
            results = [rows.select(0, -1) for rows in stacked]
            self._append_rows(stacked[1:], (results[0] - done).item())
        else:
            results = torch.ops.higher_order.while_loop(more, body, tensors, self._operands.values())
        _apply(self._changes, None, results[1:])
        return self._body.results[1:]

    def _append_rows(self, stacked: Sequence[torch.Tensor], count: Any) -> None:
        """Appends to each list what the iterations appended; without an iteration, torch returns one row too many."""
        torch._check(count >= 0)
        rows = iter(stacked)
        for change in self._changes:
            tensors = [next(rows) for _ in change.leaves()]
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
