"""Rewriting of a graph that writes in place into one that computes the same with pure operators.

A write becomes the functional variant of its operator. The new value is scattered back along the chain of views, up to
the tensor that owns the storage. A view that is read after the write is computed again from the owner's new value.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate

from fx_onnx.aten.alias_analysis import (
    RESIZES,
    AliasTracker,
    check_data_assignment,
    find_functional_variant,
    functional_variant,
    is_resize_of_nothing,
    is_write,
    written_arguments,
)
from fx_onnx.aten.fx_nodes import attribute, meta_arguments, region_body
from fx_onnx.aten.view_scatter import scatter_back
from fx_onnx.messages.errors import MutationError
from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.names import Names
from fx_onnx.sizes.symbolic_sizes import same_size, static
from fx_onnx.torch_internals.operators import aten
from fx_onnx.torch_internals.torch_private import OpOverload

# Batch normalization in training mode → the operator that returns the running statistics instead of writing to them.
_BATCH_NORMS: dict[Any, OpOverload] = {
    aten.batch_norm.default: aten._native_batch_norm_legit_functional.default,
    aten._native_batch_norm_legit.default: aten._native_batch_norm_legit_functional.default,
    aten._batch_norm_with_update.default: aten._batch_norm_with_update_functional.default,
}

# Operators that return booleans for any arguments. In place, the result is stored as numbers.
_BOOLEAN = frozenset(
    f"aten::{name}"
    for name in (
        "eq", "ne", "lt", "le", "gt", "ge", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
        "logical_and", "logical_or", "logical_xor", "logical_not",
    )
)  # fmt: skip


def functional_graph(graph: Graph) -> Graph:
    """Returns a graph without writes that returns what ``graph`` returns; writes to its placeholders are dropped.

    Its ``get_attr`` nodes keep their targets.
    """
    new, written = rewrite_writes(graph, None)
    (output,) = new.find_nodes(op="output")
    results = output.args[0][: len(output.args[0]) - len(written)]
    (old_output,) = graph.find_nodes(op="output")
    output.args = (results if isinstance(old_output.args[0], (list, tuple)) else results[0],)
    return new


def rewrite_writes(
    graph: Graph, attributes: GraphAttributes | None, repeated: Mapping[Node, Node] | None = None
) -> tuple[Graph, dict[Node, Node]]:
    """Returns a copy of a graph without writes, and the final value of each placeholder that the graph writes to.

    The copy returns those values after the graph's own results.

    Args:
        graph: the graph, which does not change.
        attributes: collects the bodies and tensors that ``get_attr`` nodes name; None keeps the nodes' targets.
        repeated: the placeholders that are another name of an earlier one's tensor, each with the earlier one.

    Raises:
        MutationError: the graph writes through a view that has no inverse, or a body writes to its operands.
    """
    rewriter = _Rewriter(graph, attributes)
    for node, first in (repeated or {}).items():
        rewriter.aliases.identify(node, first)
    return rewriter.run()


class GraphAttributes:
    """Collects what the ``get_attr`` nodes of rewritten graphs name, each under a unique name.

    Attributes:
        graphs: the rewritten bodies of higher-order operators, each module once.
        tensors: the tensors that graphs hold.
    """

    def __init__(self) -> None:
        self.graphs: dict[str, Graph] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self._known: dict[GraphModule, str] = {}
        self._names = Names()

    def add_tensor(self, target: str, tensor: torch.Tensor) -> str:
        """Adds a tensor and returns its name, which begins with ``target``."""
        name = f"{target}_{len(self.tensors)}"
        self.tensors[name] = tensor
        return name

    def add_body(self, target: str, module: GraphModule) -> str:
        """Rewrites the graph of a body, once for each module, and returns its name, which begins with ``target``.

        Raises:
            MutationError: the body writes to its operands.
        """
        if module not in self._known:
            name = self._known[module] = self._names.unique(target)
            self.graphs[name], written = rewrite_writes(module.graph, self)
            if written:
                raise MutationError(
                    f"The body {target} writes in place to a tensor from outside the body; "
                    f"return the new value from the body and write it there."
                )
        return self._known[module]


class _Rewriter:
    """Copies a graph node by node, and asks the alias tracker which values a write has made stale.

    Attributes:
        env: captured node → the new node with its value, or a tuple of new nodes.
    """

    def __init__(self, graph: Graph, attributes: GraphAttributes | None) -> None:
        self.old, self.new, self.attributes = graph, Graph(), attributes
        self.aliases = AliasTracker(graph)
        self.env: dict[Node, Any] = {}

    def run(self) -> tuple[Graph, dict[Node, Node]]:
        """Returns the new graph, and the final value of each placeholder that was written."""
        written: dict[Node, Node] = {}
        for node in self.old.nodes:
            if node.op == "output":
                written = {n: self._read(n) for n in self.aliases.written_placeholders()}
                results = map_aggregate(node.args[0], self._argument)
                outputs = results if isinstance(results, (list, tuple)) else (results,)
                self.new.output((*outputs, *written.values()))
            else:
                self._node(node)
        return self.new, written

    def _node(self, node: Node) -> None:
        check_data_assignment(node)
        if "val" not in node.meta and isinstance(node.target, OpOverload) and node.target._schema.returns:
            node.meta["val"] = _run_on_fakes(node)  # a user's own pass added the call without it
        if arguments := written_arguments(node):
            self._write(node, arguments)
        elif (region := region_body(node)) is not None:
            self._inline(node, *region)
        elif node.target is operator.getitem and isinstance(self.env[node.args[0]], tuple):  # type: ignore[index]
            self._getitem(node, *node.args)  # type: ignore[arg-type]
        else:
            self._copy(node)

    # ---------------------------------------------------------------- reads

    def _argument(self, argument: Any) -> Any:
        return self._read(argument) if isinstance(argument, Node) else argument

    def _read(self, node: Node) -> Node:
        """Returns the new node with the present value of ``node``. A stale view is computed again."""
        node = self.aliases.canonical(node)
        if self.aliases.is_stale(node):
            if is_write(node.target) and (written := self.aliases.base(node)) is not None:
                self.env[node] = self._read(written)  # the result of a write is the written tensor
            else:
                self.env[node] = self._copied(node)
            self.aliases.refresh(node)
        value: Node = self.env[node]
        return value

    def _copy(self, node: Node) -> None:
        if node.op == "get_attr" and self.attributes is not None:
            self._get_attr(node, self.attributes)
            return
        new = self.env[node] = self._copied(node)
        if new.name != node.name:
            new.name = node.name  # node_copy renames "input" to "input_1", for example
        self.aliases.track(node)

    def _copied(self, node: Node) -> Node:
        """Returns a copy of a call; an in-place change of the shape, such as squeeze_, becomes a view."""
        new = self.new.node_copy(node, self._read)
        if isinstance(node.target, OpOverload) and node.target._schema.is_mutable:
            if node.target in RESIZES and (call := resize_call(node)) is not None:
                new.target, new.args, new.kwargs = call[0], map_aggregate(call[1], self._argument), call[2]
            else:
                new.target = functional_variant(node.target)
        return new

    def _get_attr(self, node: Node, attributes: GraphAttributes) -> None:
        value = attribute(node)
        if isinstance(value, GraphModule):
            if not all(map(region_body, node.users)):  # the body of a region is inlined
                self.env[node] = self.new.get_attr(attributes.add_body(str(node.target), value))
            return
        new = self.env[node] = self.new.node_copy(node, self._read)
        new.name, new.target = node.name, attributes.add_tensor(str(node.target), value)
        self.aliases.track(node)

    def _inline(self, node: Node, body: Graph, operands: Sequence[Any]) -> None:
        """Copies the nodes of a region's body into the graph."""
        arguments = iter(operands)
        for inner in body.nodes:
            if inner.op == "placeholder":
                operand = next(arguments)
                if isinstance(operand, Node):
                    self.aliases.identify(inner, operand)
                else:
                    self.env[inner] = operand
            elif inner.op == "output":
                results = map_aggregate(inner.args[0], self._argument)
                self.env[node] = tuple(results) if isinstance(results, (list, tuple)) else results
            else:
                self._node(inner)

    def _getitem(self, node: Node, source: Node, index: int) -> None:
        """Takes one result of a call. The result of a region is the tensor inside it, which may be written later."""
        self.env[node] = self.env[source][index]
        if (region := region_body(source)) is not None:
            result = region[0].output_node().args[0][index]  # type: ignore[index]
            if isinstance(result, Node) and self.aliases.is_tracked(self.aliases.canonical(result)):
                self.aliases.identify(node, result)

    # ---------------------------------------------------------------- writes

    def _write(self, node: Node, arguments: Sequence[Node]) -> None:
        written = [self.aliases.canonical(argument) for argument in arguments]
        for argument, value in zip(written, self._new_values(node, written), strict=True):
            self._store(argument, value)
        if node in self.env:
            return  # the call has results besides what it writes
        if is_write(node.target) and isinstance(node.meta.get("val"), torch.Tensor):
            self.aliases.track_result(node, written[0])
            self.env[node] = self.env[written[0]]
        elif isinstance(node.meta.get("val"), (list, tuple)):  # torch.sort(x, out=(values, indices))
            self.env[node] = tuple(self.env[argument] for argument in written)

    def _store(self, node: Node, value: Node) -> None:
        """Gives a node a new value, and scatters the value back into the tensor that the node is a view of."""
        base = self.aliases.base(node)
        if base is None:
            self.aliases.record_write(node)
        elif is_write(node.target):
            self._store(base, value)
        else:
            self._store(base, scatter_back(self.new, node, self._read(base), value, self._argument))
        self.env[node] = value
        self.aliases.refresh(node)

    def _new_values(self, node: Node, written: Sequence[Node]) -> list[Node]:
        """Emits the operator without the write, and returns the new value of each written argument."""
        args, kwargs = map_aggregate(node.args, self._argument), map_aggregate(dict(node.kwargs), self._argument)
        if node.target in _BATCH_NORMS:
            return self._batch_norm(node, args)
        operation = cast(OpOverload, node.target)
        if operation.namespace != "aten" and find_functional_variant(operation) is None:
            return self._custom_operator(node, written, args, kwargs)
        target = functional_variant(operation)
        names = {a.name for a in target._schema.arguments}
        call = self.new.call_function(target, args, {k: v for k, v in kwargs.items() if k in names})
        call.name = node.name
        call.meta = {**node.meta, metadata.SOURCE_TEXT: str(node.format_node())}
        stored = [argument.meta["val"] for argument in written]
        if len(target._schema.returns) == 1 and str(target._schema.returns[0].type) == "Tensor":
            call.meta["val"] = _result(call, stored[0])
            return [self._as_stored(call, stored[0])]
        call.meta["val"] = tuple(stored)
        return [self._item(call, index, value) for index, value in enumerate(stored)]

    def _batch_norm(self, node: Node, args: Any) -> list[Node]:
        """Emits batch normalization in training mode, and returns the new running mean and variance."""
        target = _BATCH_NORMS[node.target]
        call = self.new.call_function(target, args[: len(target._schema.arguments)])
        statistics = [args[i].meta["val"] for i in (3, 4)]
        own, only = node.meta["val"], isinstance(node.meta["val"], torch.Tensor)
        results = (own, *statistics) if only else tuple(own)
        call.name = node.name
        call.meta = {**node.meta, "val": (*results, *statistics)}
        items = [self._item(call, index, value) for index, value in enumerate(call.meta["val"])]
        self.env[node] = items[0] if only else tuple(items[: len(results)])
        return items[len(results) :]

    def _custom_operator(self, node: Node, written: Sequence[Node], args: Any, kwargs: Any) -> list[Node]:
        """Emits a custom operator that writes, as a call that returns its own results and then the written values.

        Only a user's translation can translate the call. docs/custom_operators.md asks it to return these results.
        """
        own = [value for value in _results_not_written(node) if value is not None]
        call = self.new.call_function(node.target, args, kwargs)  # type: ignore[arg-type]
        call.name = node.name
        stored = [argument.meta["val"] for argument in written]
        single = len(own) + len(stored) == 1
        call.meta = {**node.meta, "val": stored[0] if single else (*own, *stored)}
        items = [call] if single else [self._item(call, i, value) for i, value in enumerate(call.meta["val"])]
        if own:
            self.env[node] = items[0] if isinstance(node.meta["val"], torch.Tensor) else tuple(items[: len(own)])
            self.aliases.track(node)
        return items[len(own) :]

    def _item(self, call: Node, index: int, value: torch.Tensor) -> Node:
        item = self.new.call_function(operator.getitem, (call, index))
        item.meta = {**call.meta, "val": value}
        return item

    def _as_stored(self, call: Node, stored: torch.Tensor) -> Node:
        """Casts a result to the dtype of the tensor that the captured call writes to."""
        if call.meta["val"].dtype == stored.dtype:
            return call
        cast = self.new.call_function(aten.to.dtype, (call, stored.dtype))
        cast.meta = {**call.meta, "val": stored}
        return cast


def _result(call: Node, stored: torch.Tensor) -> torch.Tensor:
    """Returns the fake result of a functional call: that of the written tensor, unless the dtypes may differ.

    Booleans, such as a mask, do not change the dtype.
    """
    tensors = [n.meta["val"] for n in call.all_input_nodes if isinstance(n.meta["val"], torch.Tensor)]
    if all(t.dtype in (stored.dtype, torch.bool) for t in tensors) and call.target._schema.name not in _BOOLEAN:  # type: ignore[union-attr]
        return stored
    result: torch.Tensor = _run_on_fakes(call)
    return result


def _run_on_fakes(node: Node) -> Any:
    """Returns the fake result of a call."""
    args, kwargs = meta_arguments(node)
    with torch.no_grad():
        return node.target(*args, **kwargs)  # type: ignore[operator]


def _results_not_written(node: Node) -> list[Any]:
    """Returns the fake results of a call that are not its written arguments."""
    value = node.meta.get("val")
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    returns = cast(OpOverload, node.target)._schema.returns
    if len(returns) != len(values):  # one list of tensors
        return values
    return [result for result, formal in zip(values, returns, strict=True) if formal.alias_info is None]


# ---------------------------------------------------------------- resizes

# ``resize_`` and ``resize_as_`` change the shape of a tensor and keep its memory. ATen does not define the elements of
# a larger result. Those of a tensor that is not contiguous depend on its memory, which ONNX does not have.


def resize_call(node: Node) -> tuple[OpOverload, tuple[Any, ...], dict[str, Any]] | None:
    """Returns the functional call that a ``resize_`` or ``resize_as_`` is: its operator and arguments.

    It is a view, or, for a tensor without elements, a new tensor, as in ``x.new().resize_(4, 6).fill_(0)``. Returns
    None if the result may have other elements that the tensor does not have, if the tensor is not contiguous, or if it
    is an input or a buffer, whose new shape the caller would see.
    """
    tensor, sizes = node.args[:2]
    if not isinstance(tensor, Node) or tensor.op != "call_function":
        return None
    old, new = tensor.meta["val"], node.meta["val"]
    if node.kwargs.get("memory_format") not in (None, torch.contiguous_format) or not old.is_contiguous():
        return None
    if same_size(old.numel(), new.numel()):
        return (aten.view_as if isinstance(sizes, Node) else aten.view).default, (tensor, sizes), {}
    if is_resize_of_nothing(node):
        is_like = isinstance(sizes, Node)
        target, args = (aten.empty_like, (sizes,)) if is_like else (aten.new_empty, (tensor, sizes))
        return target.default, args, {"dtype": old.dtype}
    before, after = static(old.numel()), [static(size) for size in new.shape]
    if not all(isinstance(number, int) for number in (before, *after)) or new.numel() > before:
        return None
    return aten.as_strided.default, (tensor, after, [static(stride) for stride in new.stride()]), {}
