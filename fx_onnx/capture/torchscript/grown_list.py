"""Lists to which a loop on data appends. The appended tensors become one stacked tensor of dynamic length.

In Python, ``items += [x]`` and ``items = items + [x]`` assign the variable ``items``, so TorchScript carries the list
from one iteration to the next. ``items.append(x)`` does not. A loop that carries a list only to add items to it becomes
a loop that adds the items to an outer list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from fx_onnx.capture.torchscript.script_values import Appended
from fx_onnx.core.errors import CaptureError
from fx_onnx.core.messages import MessageId

if TYPE_CHECKING:
    from fx_onnx.capture.torchscript.script_graph import Block, Operation

__all__ = ["APPENDING", "has_appended", "is_only_appended_to", "on_grown_list", "with_outer_lists"]


# Operators that add items to the end of their first argument.
APPENDING = ("aten::append", "aten::add_", "aten::extend")


def has_appended(value: Any) -> bool:
    """Returns whether a value is a list to which a loop on data has appended."""
    return isinstance(value, list) and any(isinstance(item, Appended) for item in value)


def is_only_appended_to(block: Block, numbers: set[int]) -> bool:
    """Returns whether a block does nothing with the values of the given numbers but append to them.

    An iteration cannot read what earlier iterations appended.
    """
    for operation in block.operations:
        used = numbers.intersection(operation.inputs)
        is_append = operation.kind in APPENDING and operation.inputs[0] in numbers
        if used and (not is_append or operation.inputs[1] in numbers):
            return False
        numbers = numbers | set(operation.outputs) if is_append else numbers
        if any(numbers & inner.free for inner in operation.blocks):
            return False
    return not numbers.intersection(block.results)


def on_grown_list(operation: Operation, arguments: Sequence[Any]) -> Any:
    """Returns the result of an operator on a list to which a loop on data has appended.

    Raises:
        CaptureError: The operator needs the number of items.
    """
    items, *rest = arguments
    function = _OPERATORS.get(operation.kind)
    if function is None or not has_appended(items):
        raise CaptureError(
            f"The length of a list depends on data, and {operation.kind} needs it{operation.source}; torch.stack, "
            "torch.cat, len and an index are possible on such a list.",
            id=MessageId.TORCHSCRIPT,
        )
    return function(operation, items, *rest)


# --- operators on such a list -----------------------------------------------------------------------------------------


def _length(operation: Operation, items: list[Any]) -> Any:
    return sum(item.stacked.size(0) if isinstance(item, Appended) else 1 for item in items)


def _item(operation: Operation, items: list[Any], place: Any) -> Any:
    """Returns an item that a known place names, or any item if a loop has appended all of them."""
    if len(items) == 1:
        return items[0].stacked.select(0, place)
    known = items[place] if isinstance(place, int) and -len(items) <= place < len(items) else None
    between = (
        items[:place] if isinstance(place, int) and place >= 0 else items[place:] if isinstance(place, int) else items
    )
    if known is None or isinstance(known, Appended) or has_appended(between):
        raise CaptureError(
            f"An index of a list whose length depends on data is not known{operation.source}.", id=MessageId.TORCHSCRIPT
        )
    return known


def _stack(operation: Operation, items: list[Any], dim: int = 0) -> torch.Tensor:
    rows = [item.stacked if isinstance(item, Appended) else item.unsqueeze(0) for item in items]
    return torch.cat(rows).movedim(0, dim)


def _cat(operation: Operation, items: list[Any], dim: int = 0) -> torch.Tensor:
    rank = next(item.stacked.dim() - 1 for item in items if isinstance(item, Appended))
    axis = dim % rank
    parts = [
        item.stacked.movedim(0, axis).flatten(axis, axis + 1) if isinstance(item, Appended) else item for item in items
    ]
    return torch.cat(parts, axis)


_OPERATORS: dict[str, Callable[..., Any]] = {
    "aten::len": _length,
    "aten::__getitem__": _item,
    "aten::stack": _stack,
    "aten::cat": _cat,
    "aten::concat": _cat,
}


# --- carried lists ----------------------------------------------------------------------------------------------------


def with_outer_lists(operation: Operation) -> Sequence[Operation]:
    """Returns the operations to run instead of one operation: the operation itself if it carries no such list.

    The output of the loop becomes a value before the loop: the list itself for ``+=``, and a copy for ``+``.
    """
    if operation.kind != "prim::Loop":
        return [operation]
    (body,) = operation.blocks
    added = {place: add for place in range(len(operation.outputs)) if (add := _addition(body, place)) is not None}
    if not added:
        return [operation]
    lists = [
        replace(
            operation,
            kind="prim::unchecked_cast" if add.kind == "aten::add_" else "aten::list",
            inputs=(operation.inputs[2 + place],),
            outputs=(operation.outputs[place],),
            types=(operation.types[place],),
            blocks=(),
        )
        for place, add in added.items()
    ]
    kept = [place for place in range(len(operation.outputs)) if place not in added]
    loop = replace(
        operation,
        inputs=operation.inputs[:2] + tuple(operation.inputs[2 + place] for place in kept),
        outputs=tuple(operation.outputs[place] for place in kept),
        types=tuple(operation.types[place] for place in kept),
        blocks=(_adding_to(body, {add: operation.outputs[place] for place, add in added.items()}, kept),),
    )
    return [*lists, loop]


def _addition(body: Block, place: int) -> Operation | None:
    """Returns the operation that adds to a carried list, if the body does nothing else with the list."""
    before, after = body.parameters[1 + place], body.results[1 + place]
    made = {output: operation for operation in body.operations for output in operation.outputs}
    addition = made.get(after)
    if addition is None or addition.kind not in ("aten::add", "aten::add_") or addition.inputs[0] != before:
        return None
    if addition.types[0].kind() != "ListType":
        return None
    uses = [number for operation in body.operations for number in operation.inputs]
    uses += [number for operation in body.operations for inner in operation.blocks for number in inner.free]
    uses += body.results
    return addition if uses.count(before) == 1 and uses.count(after) == 1 else None


def _adding_to(body: Block, lists: dict[Operation, int], kept: list[int]) -> Block:
    """Returns a body that adds to outer lists, given by operation, and carries only the values at some places."""
    operations = tuple(
        replace(each, kind="aten::add_", inputs=(lists[each], *each.inputs[1:])) if each in lists else each
        for each in body.operations
    )
    return replace(
        body,
        parameters=body.parameters[:1] + tuple(body.parameters[1 + place] for place in kept),
        operations=operations,
        results=body.results[:1] + tuple(body.results[1 + place] for place in kept),
        free=body.free | frozenset(lists.values()),
    )
