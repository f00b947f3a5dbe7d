"""Reads a TorchScript graph into plain Python objects: blocks of operations, with their attributes and source lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from fx_onnx.messages.errors import CaptureError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.torchscript.script_private import inlined_call

__all__ = ["APPENDING", "Block", "GraphReader", "Operation", "Source", "is_only_appended_to"]


@dataclass(frozen=True)
class Source:
    """The place of the user's code that an operation comes from.

    Attributes:
        file: The path of the file when the model was scripted or traced; empty if TorchScript does not know it.
        line: The number of the line.
        code: The text of the line; empty for traced models, which store only the place.
    """

    file: str = ""
    line: int = 0
    code: str = ""

    def __str__(self) -> str:
        """Returns ` (file:line: code)`, or an empty string if the place is unknown."""
        return f" ({self.file}:{self.line}{': ' + self.code if self.code else ''})" if self.file else ""

    def stack_trace(self) -> str:
        """Returns the place in the format of a Python traceback."""
        return f'  File "{self.file}", line {self.line}, in forward\n    {self.code}'


@dataclass(eq=False)
class Operation:
    """One node of a graph.

    Attributes:
        kind: The qualified name of the operator, for example ``aten::add``.
        schema: The schema as text, for example ``aten::add.Tensor(Tensor self, ...) -> Tensor``; may be empty.
        inputs: The numbers of the input values.
        outputs: The numbers of the output values.
        types: The types of the output values.
        attributes: The attributes by name.
        blocks: The blocks of prim::If and prim::Loop.
        source: The place in the user's code.
        node: The node of torch, from which the called function can be read.
    """

    kind: str
    schema: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    types: tuple[Any, ...]
    attributes: dict[str, Any]
    blocks: tuple[Block, ...]
    source: Source
    node: Any


@dataclass(eq=False)
class Block:
    """A sequence of operations.

    Attributes:
        parameters: The numbers of the parameters.
        operations: The operations in order.
        results: The numbers of the results.
        free: The numbers of the values that the block reads but does not define.
        graph: The graph of torch, which keeps its nodes alive.
    """

    parameters: tuple[int, ...]
    operations: tuple[Operation, ...]
    results: tuple[int, ...]
    free: frozenset[int]
    graph: Any


class GraphReader:
    """Reads graphs, each graph and each function once.

    Args:
        add_constant: Receives the name and the value of each tensor constant; returns what replaces the value.
    """

    def __init__(self, add_constant: Callable[[str, torch.Tensor], Any]) -> None:
        self._add_constant = add_constant
        self._called: dict[Any, Block] = {}

    def read(self, graph: Any) -> Block:
        """Returns the block of a whole graph."""
        return self._block(graph, graph)

    def called(self, operation: Operation) -> Block:
        """Returns the body of the function, or of the method of a TorchScript class, that an operation calls."""
        key = str(next(operation.node.inputs()).type()), operation.attributes.get("name")
        if key not in self._called:
            self._called[key] = self.read(inlined_call(operation.node))
        return self._called[key]

    def _block(self, block: Any, graph: Any) -> Block:
        operations = tuple(op for node in block.nodes() for op in _with_outer_lists(self._operation(node, graph)))
        parameters = tuple(value.unique() for value in block.inputs())
        results = tuple(value.unique() for value in block.outputs())
        defined = {*parameters, *(output for op in operations for output in op.outputs)}
        used = {number for op in operations for number in op.inputs}
        used |= {number for op in operations for inner in op.blocks for number in inner.free}
        return Block(parameters, operations, results, frozenset((used | set(results)) - defined), graph)

    def _operation(self, node: Any, graph: Any) -> Operation:
        schema = node.schema()
        kind = node.kind()
        if "MKLDNN" in kind or kind.startswith("mkldnn"):
            raise CaptureError(
                f"The TorchScript operator {kind} runs on the CPU of PyTorch only{_source(node.sourceRange())}; export "
                "the model before torch.jit.optimize_for_inference.",
                id=MessageId.TORCHSCRIPT,
            )
        outputs = list(node.outputs())
        return Operation(
            kind=kind,
            schema="" if schema == "(no schema)" else schema,
            inputs=tuple(value.unique() for value in node.inputs()),
            outputs=tuple(value.unique() for value in outputs),
            types=tuple(value.type() for value in outputs),
            attributes=self._attributes(node),
            blocks=tuple(self._block(block, graph) for block in node.blocks()),
            source=_source(node.sourceRange()),
            node=node,
        )

    def _attributes(self, node: Any) -> dict[str, Any]:
        if node.kind() != "prim::Constant":
            return {name: self._attribute(node, name) for name in node.attributeNames()}
        output = node.output()
        value = None if output.type().kind() == "FunctionType" else output.toIValue()
        return {"value": self._add_constant(output.debugName(), value) if isinstance(value, torch.Tensor) else value}

    def _attribute(self, node: Any, name: str) -> Any:
        kind = node.kindOf(name)
        if kind == "g":  # the graph of prim::fork and of prim::Closure
            return self.read(node.g(name))
        if not hasattr(node, kind):
            raise CaptureError(
                f"{node.kind()} has an attribute of the unknown kind {kind}{_source(node.sourceRange())}.",
                id=MessageId.TORCHSCRIPT,
            )
        return getattr(node, kind)(name)


def _source(text: str) -> Source:
    """Reads the place from the text of a source range; the innermost place of a traced call stack."""
    scripted = re.search(r'File "(.+?)", line (\d+)', text)
    if scripted:
        marked = re.search(r"(.*)\n *~", text)  # the first line that TorchScript underlines
        return Source(scripted[1], int(scripted[2]), marked[1].strip() if marked else "")
    traced = re.match(r"(.+?)\((\d+)\): ", text)
    return Source(traced[1], int(traced[2])) if traced else Source()


# --- lists to which a loop appends ------------------------------------------------------------------------------------

# In Python, ``items += [x]`` and ``items = items + [x]`` assign the variable ``items``, so TorchScript carries the list
# from one iteration to the next. ``items.append(x)`` does not. A loop that carries a list only to add items to it
# becomes a loop that adds the items to an outer list.

# Operators that add items to the end of their first argument.
APPENDING = ("aten::append", "aten::add_", "aten::extend")


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


def _with_outer_lists(operation: Operation) -> Sequence[Operation]:
    """Returns the operations to run instead of one operation: the operation itself if it carries no such list.

    The output of the loop becomes a value before the loop: the list itself for ``+=``, and a copy for ``+``.
    """
    if operation.kind != "prim::Loop":
        return [operation]
    (body,) = operation.blocks
    added = {index: add for index in range(len(operation.outputs)) if (add := _addition(body, index)) is not None}
    if not added:
        return [operation]
    lists = [
        replace(
            operation,
            kind="prim::unchecked_cast" if add.kind == "aten::add_" else "aten::list",
            inputs=(operation.inputs[2 + index],),
            outputs=(operation.outputs[index],),
            types=(operation.types[index],),
            blocks=(),
        )
        for index, add in added.items()
    ]
    kept = [index for index in range(len(operation.outputs)) if index not in added]
    loop = replace(
        operation,
        inputs=operation.inputs[:2] + tuple(operation.inputs[2 + index] for index in kept),
        outputs=tuple(operation.outputs[index] for index in kept),
        types=tuple(operation.types[index] for index in kept),
        blocks=(_adding_to(body, {add: operation.outputs[index] for index, add in added.items()}, kept),),
    )
    return [*lists, loop]


def _addition(body: Block, index: int) -> Operation | None:
    """Returns the operation that adds to a carried list, if the body does nothing else with the list."""
    before, after = body.parameters[1 + index], body.results[1 + index]
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
        replace(op, kind="aten::add_", inputs=(lists[op], *op.inputs[1:])) if op in lists else op
        for op in body.operations
    )
    return replace(
        body,
        parameters=body.parameters[:1] + tuple(body.parameters[1 + index] for index in kept),
        operations=operations,
        results=body.results[:1] + tuple(body.results[1 + index] for index in kept),
        free=body.free | frozenset(lists.values()),
    )
