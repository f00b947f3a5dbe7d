"""Rewrites a loop that carries a list only to add items to it, as a loop that adds the items to an outer list.

In Python, ``items += [x]`` and ``items = items + [x]`` assign the variable ``items``, so TorchScript carries the list
from one iteration to the next. ``items.append(x)`` does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fx_onnx.capture.torchscript.script_graph import Block, Operation

__all__ = ["with_outer_lists"]


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
