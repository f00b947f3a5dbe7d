"""Captures branches and loops that depend on data with torch's higher-order operators ``cond`` and ``while_loop``.

A body is run twice or more: first without recording, to learn what it reads, changes and returns, then as a
function of exactly the tensors that it reads. What it changes outside (lists, objects, attributes of modules, tensors
that it writes to in place) is returned by the function, and applied after the branch or the loop.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from fx_onnx.capture.torchscript.grown_list import Appended, is_only_appended_to
from fx_onnx.capture.torchscript.region import Form, MergeError, Region, ScriptRaise, content, merge, shares_storage
from fx_onnx.capture.torchscript.script_graph import Block, Operation
from fx_onnx.capture.torchscript.script_values import Instance, ScalarTensor, Uninitialized
from fx_onnx.core.errors import CaptureError
from fx_onnx.core.findings import warn
from fx_onnx.core.messages import MessageId
from fx_onnx.core.symbolic_sizes import expression, is_data_dependent
from fx_onnx.core.torch_private import statically_known_true, unrecorded

if TYPE_CHECKING:
    from fx_onnx.capture.torchscript.script_interpreter import Interpreter

__all__ = ["LoopState", "branch", "find_state", "loop"]

_ENDLESS = sys.maxsize  # TorchScript's count of a loop without a limit


def branch(interpreter: Interpreter, operation: Operation, condition: Any, values: Mapping[int, Any]) -> Sequence[Any]:
    """Runs ``prim::If`` with a condition that depends on data, and returns its results.

    A branch that raises an exception is left out with a warning, because an ONNX model cannot raise one.

    Raises:
        CaptureError: The values that the branches return or assign have no common form.
        ScriptRaise: Both branches raise.
    """
    runs, raised = [], None
    for block in operation.blocks:
        region = Region(interpreter.region)
        try:
            with _explained(operation), _discovering(interpreter, region):
                results = interpreter.run(block, (), _entered(block, values, region))
            runs.append((block, region, results))
        except ScriptRaise as error:
            raised = error
    if raised is not None:
        if not runs:
            raise raised
        warn(
            f"The model raises an exception if a condition on data holds, and the exported model does not: {raised}.",
            MessageId.EXCEPTION_ON_DATA,
        )
        return interpreter.run(runs[0][0], (), values)
    with _explained(operation):
        changes = [_changes(region, results) for _, region, results in runs]
    keys = {key: owner for each in changes for key, (owner, _) in each.items()}
    regions = [region for _, region, _ in runs]
    with _explained(operation), unrecorded():
        pairs = {
            key: [_after(interpreter, key, owner, *run) for run in zip(changes, regions, strict=True)]
            for key, owner in keys.items()
        }
        forms = {key: _merged(key, pair, regions) for key, pair in pairs.items()}
    read = {**regions[0].read, **regions[1].read}
    written = {key[1] for key in keys if key[0] == "tensor"}
    if any(form.leaves() for form in forms.values()):
        functions = [_branch_function(interpreter, block, values, read, written, keys, forms) for block, _, _ in runs]
        tensors = list(torch.ops.higher_order.cond(condition, *functions, tuple(_operands(read))))
    else:
        tensors = []
    return _applied(interpreter, keys, forms, tensors, len(operation.outputs))


def _branch_function(
    interpreter: Interpreter,
    block: Block,
    values: Mapping[int, Any],
    read: Mapping[Any, Any],
    written: set[Any],
    keys: Mapping[Any, Any],
    forms: Mapping[Any, Form],
) -> Any:
    def function(*operands: Any) -> tuple[torch.Tensor, ...]:
        region = Region(interpreter.region, _given(read, operands, written))
        with interpreter.inside(region):
            results = interpreter.run(block, (), _entered(block, values, region))
            changes = _changes(region, results)
            after = {key: _after(interpreter, key, owner, changes, region) for key, owner in keys.items()}
            return tuple(tensor for key, form in forms.items() for tensor in form.flatten(after[key]))

    return function


@dataclass(frozen=True)
class LoopState:
    """What the iterations of a loop change.

    Attributes:
        owners: The owner of each value that changes, by the value's key.
        before: The values before the loop, by key.
        forms: The forms that the values have after any number of iterations, by key.
        region: A run of the body, which tells what it reads.
    """

    owners: Mapping[Any, Any]
    before: Mapping[Any, Any]
    forms: Mapping[Any, Form]
    region: Region


def find_state(
    interpreter: Interpreter,
    operation: Operation,
    count: Any,
    condition: Any,
    carried: Sequence[Any],
    values: Mapping[int, Any],
) -> LoopState:
    """Runs the body of ``prim::Loop`` without recording, until it is known what the iterations change.

    Raises:
        CaptureError: A carried value has another form after an iteration.
    """
    block = operation.blocks[0]
    keys: dict[Any, Any] = {("condition",): None, **{("result", k): None for k in range(len(carried))}}
    before: dict[Any, Any] = dict(zip(keys, (condition, *carried), strict=True))
    forms = {key: Form("known", value) for key, value in before.items()}
    while True:
        region = Region(interpreter.region)
        with _explained(operation), _discovering(interpreter, region):
            region.enter(count)
            number = torch.empty((), dtype=torch.int64).item()
            inner = {key: form.example(region.enter) for key, form in forms.items()}
            after = _iteration(interpreter, block, values, region, number, keys, inner)
            before.update(
                {key: _before(interpreter, key, owner) for key, (owner, _) in after.items() if key not in keys}
            )
            keys.update((key, owner) for key, (owner, _) in after.items())
            found = {
                key: _merged(key, (before[key], after[key][1] if key in after else before[key]), (None, region))
                for key in keys
            }
        merged = {key: _promoted(forms.get(key), form) for key, form in found.items()}
        if _shape(merged) == _shape(forms):
            break
        forms = merged
    final = {key: after[key][1] if key in after else before[key] for key in forms}
    with _explained(operation), unrecorded():
        _check_metadata(forms, before, final)
    return LoopState(keys, before, forms, region)


def _check_metadata(forms: Mapping[Any, Form], before: Mapping[Any, Any], after: Mapping[Any, Any]) -> None:
    """Raises a MergeError if an iteration changes the dtype or the shape of a tensor."""
    for key, form in forms.items():
        for old, new in zip(form.flatten(before[key]), form.flatten(after[key]), strict=True):
            if old.dtype != new.dtype:
                raise MergeError(f"an iteration changes the dtype of a tensor from {old.dtype} to {new.dtype}")
            if old.dim() != new.dim() or not all(map(_may_be_equal, old.shape, new.shape)):
                raise MergeError("an iteration changes the shape of a tensor")


def _may_be_equal(a: Any, b: Any) -> bool:
    """Returns whether two sizes are equal, or whether torch has to decide, because one depends on data."""
    return any(is_data_dependent(expression(size)) for size in (a, b)) or statically_known_true(a == b)


def loop(
    interpreter: Interpreter,
    operation: Operation,
    done: int,
    count: Any,
    values: Mapping[int, Any],
    found: LoopState,
) -> Sequence[Any]:
    """Runs the iterations of ``prim::Loop`` from number ``done`` on as a ``while_loop``; returns the carried values."""
    block, read = operation.blocks[0], found.region.read
    keys, before, forms = found.owners, found.before, found.forms
    written = {key[1] for key in keys if key[0] == "tensor"}
    initial = [torch.scalar_tensor(done, dtype=torch.int64)]
    initial += [tensor for key, form in forms.items() for tensor in form.flatten(before[key])]
    is_counted, may_end = not (isinstance(count, int) and count == _ENDLESS), bool(forms["condition",].leaves())
    if not is_counted and not may_end:
        raise CaptureError(f"The model has a loop that never ends{operation.source}.", id=MessageId.TORCHSCRIPT)

    def more(number: torch.Tensor, *tensors: Any) -> torch.Tensor:
        leaves, operands = tensors[: len(initial) - 1], tensors[len(initial) - 1 :]
        region = Region(interpreter.region, _given(read, operands, set()))
        is_inside: torch.Tensor | None = number < region.enter(count) if is_counted else None
        if not may_end or is_inside is None:
            return torch.as_tensor(leaves[0]) if is_inside is None else is_inside
        return torch.logical_and(leaves[0], is_inside)

    def body(number: torch.Tensor, *tensors: Any) -> tuple[torch.Tensor, ...]:
        leaves, operands = list(tensors[: len(initial) - 1]), tensors[len(initial) - 1 :]
        region = Region(interpreter.region, _given(read, operands, written))
        with interpreter.inside(region):
            inner = {key: form.build(leaves, region.enter) for key, form in forms.items()}
            after = _iteration(interpreter, block, values, region, number.item(), keys, inner)
            final = {key: after[key][1] if key in after else inner[key] for key in forms}
            return (number + 1, *(tensor for key, form in forms.items() for tensor in form.flatten(final[key])))

    initial = [tensor.detach() for tensor in initial]
    operands = tuple(_operands(read))
    if any(key[0] == "appended" for key in keys):
        stacked = torch.ops.higher_order.while_loop_stack_output(more, body, tuple(initial), operands)
        results = [rows.select(0, -1) for rows in stacked]
        _append_rows(keys, forms, stacked, (results[0] - done).item())
    else:
        results = torch.ops.higher_order.while_loop(more, body, tuple(initial), operands)
    return _applied(interpreter, keys, forms, list(results[1:]), len(operation.outputs))


def _append_rows(
    keys: Mapping[Any, Any], forms: Mapping[Any, Form], stacked: Sequence[torch.Tensor], count: Any
) -> None:
    """Appends to each list what the iterations appended; without an iteration, torch returns one row too many."""
    torch._check(count >= 0)
    rows = list(stacked[1:])
    for key, form in forms.items():
        tensors = [rows.pop(0) for _ in form.leaves()]
        if key[0] == "appended":
            torch._check(count <= tensors[0].size(0))
            keys[key].append(Appended(tensors[0].narrow(0, 0, count)))


def _iteration(
    interpreter: Interpreter,
    block: Block,
    values: Mapping[int, Any],
    region: Region,
    number: Any,
    keys: Mapping[Any, Any],
    inner: Mapping[Any, Any],
) -> dict[Any, tuple[Any, Any]]:
    """Runs one iteration from the state ``inner`` and returns the state after it: owner and value by key."""
    torch._check(number >= 0)
    for key, owner in keys.items():
        if key[0] == "container":
            _replace_content(region.enter(owner), inner[key])
        elif key[0] == "attribute":
            region.assigned[owner] = inner[key]
        elif key[0] == "tensor":
            region.enter(owner).copy_(inner[key])
    carried = [inner[key] for key in keys if key[0] == "result"]
    condition, *results = interpreter.run(block, [number, *carried], _entered(block, values, region))
    changes = {("condition",): (None, condition), **_changes(region, results)}
    return dict(_as_appended(block, values, region, key, change) for key, change in changes.items())


def _as_appended(
    block: Block, values: Mapping[int, Any], region: Region, key: Any, change: tuple[Any, Any]
) -> tuple[Any, tuple[Any, Any]]:
    """Returns the key and the change of a list as one appended tensor, if the body does nothing else with the list."""
    owner, items = change
    if key[0] != "container" or not isinstance(owner, list) or len(items) != len(owner) + 1:
        return key, change
    numbers = {number for number in block.free if values[number] is owner}
    item = items[len(owner)]
    is_attribute = any(region.outer_of(value) is owner for value in region.assigned.values())
    if is_attribute or not numbers or not isinstance(item, torch.Tensor) or not is_only_appended_to(block, numbers):
        return key, change
    return ("appended", id(owner)), (owner, item)


# --- what a body changes ----------------------------------------------------------------------------------------------


def _changes(region: Region, results: Sequence[Any]) -> dict[Any, tuple[Any, Any]]:
    """Returns the results of a body and what it has changed outside, as the owner and the new value by key."""
    found: dict[Any, tuple[Any, Any]] = {("result", k): (None, value) for k, value in enumerate(results)}
    for outer, inner in region.changed_containers():
        found["container", id(outer)] = (outer, content(inner))
    for owner, value in region.assigned.items():
        found["attribute", owner] = (owner, value)
    written = region.written()
    if shares_storage(written, region.read):
        raise MergeError("it writes to a tensor of which another variable is a view")
    for key, (outer, inner) in written.items():
        found["tensor", key] = (outer, inner)
    return found


def _after(interpreter: Interpreter, key: Any, owner: Any, changes: Mapping[Any, Any], region: Region) -> Any:
    """Returns the value of ``key`` after a body; the body may not have changed it."""
    if key in changes:
        return changes[key][1]
    if key[0] == "attribute":
        return interpreter.attribute_in(region, *owner)
    return content(region.enter(owner)) if key[0] == "container" else region.enter(owner)


def _before(interpreter: Interpreter, key: Any, owner: Any) -> Any:
    """Returns the value of ``key`` before a loop."""
    if key[0] == "attribute":
        return interpreter.read_attribute(*owner)
    if key[0] == "appended":
        return Uninitialized("TensorType")
    return content(owner) if key[0] == "container" else owner


def _merged(key: Any, pair: Sequence[Any], regions: Sequence[Region | None]) -> Form:
    """Returns the common form of two values of ``key``; a tensor that a body has written to is computed in any case."""
    first, second = pair
    return Form("tensor", first) if key[0] == "tensor" else merge(first, second, regions)


def _applied(
    interpreter: Interpreter,
    keys: Mapping[Any, Any],
    forms: Mapping[Any, Form],
    tensors: list[torch.Tensor],
    results: int,
) -> Sequence[Any]:
    """Applies what the bodies have changed to the values outside, and returns the results of the operation."""
    built = {key: form.build(tensors) for key, form in forms.items()}
    for key, owner in keys.items():
        if key[0] == "container":
            _replace_content(owner, built[key])
        elif key[0] == "attribute":
            module, name = owner
            interpreter.assign_attribute(module, name, built[key])
        elif key[0] == "tensor":
            owner.copy_(built[key])
    return [built["result", k] for k in range(results)]


def _replace_content(container: Any, items: Mapping[Any, Any]) -> None:
    if isinstance(container, list):
        container[:] = items.values()
        return
    if isinstance(container, ScalarTensor):
        container.tensor = items["tensor"]
        return
    kept = container.attributes if isinstance(container, Instance) else container
    kept.clear()
    kept.update(items)


def _promoted(old: Form | None, new: Form) -> Form:
    """Returns ``new`` with the known values that changed earlier, according to ``old``, as computed values."""
    if old is None or old.kind == "known" or (new.kind != "known" and not new.parts):
        return new
    if new.kind == "known" or not old.parts:
        return old
    return Form(new.kind, new.value, {key: _promoted(old.parts.get(key), part) for key, part in new.parts.items()})


def _shape(forms: Mapping[Any, Form]) -> Any:
    return {key: [leaf.kind for leaf in form.leaves()] for key, form in forms.items()}


# --- operands ---------------------------------------------------------------------------------------------------------


@contextmanager
def _discovering(interpreter: Interpreter, region: Region) -> Iterator[None]:
    with unrecorded(), interpreter.inside(region):
        yield


@contextmanager
def _explained(operation: Operation) -> Iterator[None]:
    """Turns a MergeError into the error of the export."""
    try:
        yield
    except MergeError as error:
        kind = "loop" if operation.kind == "prim::Loop" else "branch"
        raise CaptureError(
            f"A {kind} that depends on data cannot be exported{operation.source}: {error}; let every "
            "variable keep its type, shape and length.",
            id=MessageId.TORCHSCRIPT,
        ) from error


def _entered(block: Block, values: Mapping[int, Any], region: Region) -> dict[int, Any]:
    return {number: region.enter(values[number]) for number in sorted(block.free)}


def _operands(read: Mapping[Any, Any]) -> Iterator[Any]:
    """Yields the outer values as operands of a higher-order operator, which takes tensors and integers."""
    dtypes: dict[Any, torch.dtype] = {torch.SymFloat: torch.float64, torch.SymBool: torch.bool}
    for value in read.values():
        if type(value) in dtypes:
            yield torch.scalar_tensor(value, dtype=dtypes[type(value)])
        else:  # without a gradient, because torch would capture the backward pass too
            yield value.detach() if isinstance(value, torch.Tensor) and value.requires_grad else value


def _given(read: Mapping[Any, Any], operands: Sequence[Any], written: set[Any]) -> dict[Any, Any]:
    """Returns the body's values by key: the operands as numbers where they were numbers, and copies to write to."""
    given = {}
    for (key, value), operand in zip(read.items(), operands, strict=True):
        if isinstance(value, (torch.SymFloat, torch.SymBool)):
            operand = operand.item()
        given[key] = operand.clone() if key in written else operand
    return given
