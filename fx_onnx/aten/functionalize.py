"""In-place and view writes → pure values.

What torch.export returns is not functional: ``relu_``, ``copy_`` into a slice, a counter that adds to a buffer. Its
fake tensors share storages exactly where the real tensors would, so aliasing is known exactly. A write becomes its
functional operator; the new value is scattered back along the chain of views to the owner of the storage, and later
readers of any alias are derived from the owner anew.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.fx
from torch.export.graph_signature import InputKind, OutputKind, OutputSpec, TensorArgument
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate

import fx_onnx.core.custom_ops  # noqa: F401  defines variants that ATen lacks
from fx_onnx.aten.autocast import with_casts
from fx_onnx.aten.view_scatter import scatter_back
from fx_onnx.core import metadata
from fx_onnx.core.errors import MutationError
from fx_onnx.core.names import Names
from fx_onnx.core.torch_private import OpOverload, operator_name, storage_id

aten = torch.ops.aten


@dataclass(frozen=True)
class AtenProgram:
    """An ExportedProgram together with a graph of our own, which the stages after capture may rewrite.

    Attributes:
        exported_program: what was captured; never changed.
        graph: the FX graph; placeholders and user outputs are those of the ExportedProgram, in order, followed by the
            outputs of ``mutations``.
        mutations: an output specification for each buffer and input that the program writes to.
        constants: tensors that ``get_attr`` nodes of the graphs name.
        bodies: the graphs of higher-order operators (branches, loop bodies), which ``get_attr`` nodes name likewise.
    """

    exported_program: torch.export.ExportedProgram
    graph: torch.fx.Graph
    mutations: tuple[OutputSpec, ...]
    constants: dict[str, torch.Tensor]
    bodies: dict[str, Graph]

    @property
    def graphs(self) -> list[Graph]:
        """The main graph and all bodies."""
        return [self.graph, *self.bodies.values()]


def functionalize(exported_program: torch.export.ExportedProgram) -> AtenProgram:
    """The program without writes; what it wrote to buffers and inputs becomes outputs after the user's.

    Raises:
        MutationError: a write goes through a view that has no inverse.
        TranslationError: it cannot be told what an autocast region casts.
    """
    exported_program = _without_vmap(exported_program)
    signature = exported_program.graph_signature
    bodies = _Bodies()
    graph, written = _Rewriter(with_casts(exported_program.graph_module).graph, bodies).run()
    kinds = {spec.arg.name: spec for spec in signature.input_specs if isinstance(spec.arg, TensorArgument)}
    mutations = []
    for placeholder, value in written.items():
        spec = kinds[placeholder.name]
        kind = OutputKind.USER_INPUT_MUTATION if spec.kind == InputKind.USER_INPUT else OutputKind.BUFFER_MUTATION
        target = spec.target if spec.kind != InputKind.USER_INPUT else placeholder.name
        mutations.append(OutputSpec(kind, TensorArgument(name=value.name), target))
    return AtenProgram(exported_program, graph, tuple(mutations), bodies.tensors, bodies.graphs)


def _without_vmap(exported_program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program with ``vmap`` regions, which torch.export captures as calls that open and close them, batched.

    Only torch itself can do that, by tracing the program again; without such a region it is not traced again.
    """
    if any(getattr(n.target, "__name__", "") == "_vmap_increment_nesting" for n in exported_program.graph.nodes):
        exported_program = exported_program.run_decompositions({})
    return exported_program


def functional_graph(graph: Graph) -> Graph:
    """A graph without writes that returns what ``graph`` returns; writes to its placeholders are lost.

    Its ``get_attr`` nodes name what those of ``graph`` do.
    """
    new, mutated = _Rewriter(graph, None).run()
    (output,) = new.find_nodes(op="output")
    results = output.args[0][: len(output.args[0]) - len(mutated)]
    (old_output,) = graph.find_nodes(op="output")
    output.args = (results if isinstance(old_output.args[0], (list, tuple)) else results[0],)
    return new


def is_write(target: Any) -> bool:
    """Whether an FX node target writes values to one of its arguments (``squeeze_`` and such write only its shape)."""
    return isinstance(target, OpOverload) and target._schema.is_mutable and torch.Tag.inplace_view not in target.tags


class _Bodies:
    """What ``get_attr`` nodes name, under names of its own: bodies of higher-order operators, made functional once for
    each module, and tensors that a body holds.
    """

    def __init__(self) -> None:
        self.graphs: dict[str, Graph] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self._known: dict[GraphModule, str] = {}
        self._names = Names()

    def tensor(self, target: str, tensor: torch.Tensor) -> str:
        """The name under which a tensor that a body holds is kept."""
        name = f"{target}_{len(self.tensors)}"
        self.tensors[name] = tensor
        return name

    def name(self, target: str, module: GraphModule) -> str:
        """The name under which the body is kept.

        Raises:
            MutationError: it writes to what it is given.
        """
        if module not in self._known:
            name = self._known[module] = self._names.unique(target)
            self.graphs[name], mutated = _Rewriter(module.graph, self).run()
            if mutated:
                raise MutationError(f"The body {target} writes in place to what is outside; return it and write there.")
        return self._known[module]


class _Rewriter:
    """One pass over a graph that copies it; only nodes on storages that are written get more than a copy.

    Attributes:
        env: captured node -> new node with its value, as of when it was last computed.
        owner: storage -> the captured node that made it.
        parent: captured node -> the node whose view (or other name) it is.
        names: node -> the node that it is in another graph: what a region is given and what it gives.
        version: storage -> how often it was written so far; ``seen`` is the version that ``env[node]`` reads.
    """

    def __init__(self, graph: Graph, bodies: _Bodies | None) -> None:
        self.old, self.new, self.bodies = graph, Graph(), bodies
        self.written = {s for node in _all_nodes(graph) for n in _written_arguments(node) for s in _storages(n)}
        self.env: dict[Node, Any] = {}
        self.owner: dict[int, Node] = {}
        self.parent: dict[Node, Node] = {}
        self.names: dict[Node, Node] = {}
        self.version: dict[int, int] = {}
        self.seen: dict[Node, int] = {}

    def run(self) -> tuple[Graph, dict[Node, Node]]:
        """The new graph, and the final value of each placeholder that was written."""
        mutated: dict[Node, Node] = {}
        for node in self.old.nodes:
            if node.op == "output":
                mutated = {n: self._read(n) for n in self.owner.values() if n.op == "placeholder" and self._is_stale(n)}
                results = map_aggregate(node.args[0], self._argument)
                outputs = results if isinstance(results, (list, tuple)) else (results,)
                self.new.output((*outputs, *mutated.values()))
            else:
                self._node(node)
        return self.new, mutated

    def _node(self, node: Node) -> None:
        if "val" not in node.meta and isinstance(node.target, OpOverload) and node.target._schema.returns:
            node.meta["val"] = _computed(node)
        if writes := _written_arguments(node):
            self._write(node, writes)
        elif (inlined := _inlined(node)) is not None:
            self._inline(node, *inlined)
        elif node.target is operator.getitem and isinstance(self.env[node.args[0]], tuple):  # type: ignore[index]
            self._take(node, *node.args)  # type: ignore[arg-type]
        else:
            self._copy(node)

    def _inline(self, node: Node, body: Graph, operands: Sequence[Any]) -> None:
        """The nodes of a region that says how to run, not what to compute, in the place of the region."""
        arguments = iter(operands)
        for inner in body.nodes:
            if inner.op == "placeholder":
                operand = next(arguments)
                (self.names if isinstance(operand, Node) else self.env)[inner] = operand
            elif inner.op == "output":
                results = map_aggregate(inner.args[0], self._argument)
                self.env[node] = tuple(results) if isinstance(results, (list, tuple)) else results
            else:
                self._node(inner)

    def _take(self, node: Node, source: Node, index: int) -> None:
        """One of several results, or of what a region gives: that may be written later, or a part of what is."""
        self.env[node] = self.env[source][index]
        if (inlined := _inlined(source)) is not None:
            result = inlined[0].output_node().args[0][index]  # type: ignore[index]
            if isinstance(result, Node) and self._named(result) in self.seen:
                self.names[node] = result

    def _named(self, node: Node) -> Node:
        while node in self.names:
            node = self.names[node]
        return node

    def _argument(self, argument: Any) -> Any:
        return self._read(argument) if isinstance(argument, Node) else argument

    def _copy(self, node: Node) -> None:
        if node.op == "get_attr" and self.bodies is not None and isinstance(module := _attribute(node), GraphModule):
            if not all(map(_inlined, node.users)):
                self.env[node] = self.new.get_attr(self.bodies.name(str(node.target), module))
            return
        new = self.env[node] = self.new.node_copy(node, self._read)
        new.name = node.name  # a copy would be called input_1 where the captured node is called input
        if node.op == "get_attr" and self.bodies is not None:
            new.target = self.bodies.tensor(str(node.target), _attribute(node))
        if isinstance(node.target, OpOverload) and node.target._schema.is_mutable:
            new.target = functional_variant(node.target)  # squeeze_ and such: a view of a new shape
        if self.written:
            for storage in self.written.intersection(_storages(node)):
                self._track(node, storage)

    def _track(self, node: Node, storage: int) -> None:
        if isinstance(node.meta["val"], (list, tuple)) and not _shares(node, storage):
            return  # several new tensors, as topk gives: each belongs to the node that takes it out
        self.seen[node] = self.version.get(storage, 0)
        if self.owner.setdefault(storage, node) is not node:
            base = _shares(node, storage)
            if base is None:
                other = "shares memory that is written in place, but is not a view of it, as `.data` is none"
                raise MutationError(f"{node.name} {other}; write to the tensor itself.")
            self.parent[node] = base

    def _is_stale(self, node: Node) -> bool:
        """Whether the storage of an owner was ever written; of a view, whether it was since the view was taken."""
        version = max((self.version.get(s, 0) for s in _storages(node)), default=0)
        return version != (self.seen[node] if node in self.parent else 0)

    def _read(self, node: Node) -> Node:
        """The new node that holds the present value of ``node``: derived again if its storage was written since."""
        node = self._named(node)
        if node in self.parent and self._is_stale(node):
            if is_write(node.target):  # another name of what it wrote
                self.env[node] = self._read(self.parent[node])
            else:
                self.env[node] = self.new.node_copy(node, self._read)
            self.seen[node] = max(self.version.get(s, 0) for s in _storages(node))
        value: Node = self.env[node]
        return value

    def _write(self, node: Node, writes: Sequence[Node]) -> None:
        writes = [self._named(argument) for argument in writes]
        for argument, value in zip(writes, self._pure(node, writes), strict=True):
            self._store(argument, value)
        if node in self.env:
            return  # it has results of its own
        if is_write(node.target) and isinstance(node.meta.get("val"), torch.Tensor):
            (storage,) = _storages(writes[0])  # the node's own fake tensor is not always that of what it wrote
            self.parent[node], self.seen[node] = writes[0], self.version[storage]
            self.env[node] = self.env[writes[0]]
        elif isinstance(node.meta.get("val"), (list, tuple)):  # torch.sort(x, out=(values, indices))
            self.env[node] = tuple(self.env[argument] for argument in writes)

    def _store(self, node: Node, value: Node) -> None:
        """``node`` now holds ``value``, and so does the part of every tensor that it is a view of."""
        (storage,) = _storages(node)
        base = self._named(self.parent[node]) if node in self.parent else None
        if base is None:
            self.version[storage] = self.version.get(storage, 0) + 1
        elif is_write(node.target):
            self._store(base, value)
        elif isinstance(base.meta.get("val"), torch.Tensor):
            self._store(base, scatter_back(self.new, node, self._read(base), value, self._argument))
        else:  # a piece of a split or unbind: the pieces have one owner
            source = self._named(self.parent[base])
            self._store(source, scatter_back(self.new, node, self._read(source), value, self._argument))
        self.env[node], self.seen[node] = value, self.version[storage]

    def _pure(self, node: Node, writes: Sequence[Node]) -> list[Node]:
        """Emits the operator without the write; gives what each written argument holds after it."""
        args, kwargs = map_aggregate(node.args, self._argument), map_aggregate(dict(node.kwargs), self._argument)
        if node.target in _BATCH_NORMS:
            return self._batch_norm(node, args)
        if cast(OpOverload, node.target).namespace != "aten" and _variant(cast(OpOverload, node.target)) is None:
            return self._foreign(node, writes, args, kwargs)
        target = functional_variant(cast(OpOverload, node.target))
        names = {a.name for a in target._schema.arguments}
        call = self.new.call_function(target, args, {k: v for k, v in kwargs.items() if k in names})
        call.name = node.name  # it stands for the captured call, under its name and with its text
        call.meta = {**node.meta, metadata.SOURCE_TEXT: str(node.format_node())}
        stored = [argument.meta["val"] for argument in writes]
        if len(target._schema.returns) == 1 and str(target._schema.returns[0].type) == "Tensor":
            call.meta["val"] = _result(call, stored[0])
            return [self._as_stored(call, stored[0])]
        call.meta["val"] = tuple(stored)
        return [self._item(call, index, value) for index, value in enumerate(stored)]

    def _batch_norm(self, node: Node, args: Any) -> list[Node]:
        """Batch normalization in training mode returns results of its own besides the statistics that it writes to."""
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

    def _foreign(self, node: Node, writes: Sequence[Node], args: Any, kwargs: Any) -> list[Node]:
        """A custom operator that writes stands for one that returns its own results, then what it would have written.

        Nothing but a user's translation can say it, and is told to return these.
        """
        own = [value for value in _results_of_its_own(node) if value is not None]
        call = self.new.call_function(node.target, args, kwargs)  # type: ignore[arg-type]
        call.name = node.name
        stored = [argument.meta["val"] for argument in writes]
        single = len(own) + len(stored) == 1
        call.meta = {**node.meta, "val": stored[0] if single else (*own, *stored)}
        items = [call] if single else [self._item(call, i, value) for i, value in enumerate(call.meta["val"])]
        if own:
            self.env[node] = items[0] if isinstance(node.meta["val"], torch.Tensor) else tuple(items[: len(own)])
            for storage in self.written.intersection(_storages(node)):
                self._track(node, storage)
        return items[len(own) :]

    def _item(self, call: Node, index: int, value: torch.Tensor) -> Node:
        item = self.new.call_function(operator.getitem, (call, index))
        item.meta = {**call.meta, "val": value}
        return item

    def _as_stored(self, call: Node, stored: torch.Tensor) -> Node:
        """The result in the dtype of the tensor that it is written to."""
        if call.meta["val"].dtype == stored.dtype:
            return call
        cast = self.new.call_function(aten.to.dtype, (call, stored.dtype))
        cast.meta = {**call.meta, "val": stored}
        return cast


# Batch normalization in training mode, and what returns the running statistics instead of writing to them. The schema
# of the first does not say that it writes.
_BATCH_NORMS: dict[Any, OpOverload] = {
    aten.batch_norm.default: aten._native_batch_norm_legit_functional.default,
    aten._native_batch_norm_legit.default: aten._native_batch_norm_legit_functional.default,
    aten._batch_norm_with_update.default: aten._batch_norm_with_update_functional.default,
}


def functional_variant(target: OpOverload) -> OpOverload:
    """The ATen operator that returns what ``target`` writes: ``add_.Tensor`` → ``add.Tensor``, ``add.out`` likewise.

    Raises:
        MutationError: ATen has none.
    """
    variant = _variant(target)
    if variant is None:
        raise MutationError(f"{target} writes in place and ATen has no variant of it that returns the result instead.")
    return variant


@functools.cache
def _variant(target: OpOverload) -> OpOverload | None:
    name = target._schema.name.split("::")[1]
    name = _AUGMENTED.get(name, name.removesuffix("_"))
    wanted = _parameters(target)
    for namespace, packet_name in (
        (target.namespace, name),
        (target.namespace, f"{name}_functional"),
        ("fx_onnx", name),
    ):
        packet = getattr(getattr(torch.ops, namespace), packet_name, None)
        for overload in packet.overloads() if packet is not None else ():
            candidate: OpOverload = getattr(packet, overload)
            schema = candidate._schema
            if _parameters(candidate) == wanted and not schema.is_mutable and schema.returns:
                return candidate
    return None


def _results_of_its_own(node: Node) -> list[Any]:
    """The results of a call that are not what it writes to."""
    value = node.meta.get("val")
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    returns = cast(OpOverload, node.target)._schema.returns
    if len(returns) != len(values):  # one list of tensors
        return values
    return [each for each, formal in zip(values, returns, strict=True) if formal.alias_info is None]


# Python's augmented assignments that ATen names after their methods.
_AUGMENTED = {
    "__iand__": "bitwise_and", "__ior__": "bitwise_or", "__ixor__": "bitwise_xor",
    "__ilshift__": "bitwise_left_shift", "__irshift__": "bitwise_right_shift",
}  # fmt: skip


def _parameters(target: OpOverload) -> list[tuple[str, str]]:
    """Names and types of what is read; the first is called ``self`` in one variant and ``input`` in another."""
    read = [a for a in target._schema.arguments if not a.is_out]
    return [("" if index == 0 else a.name, str(a.type)) for index, a in enumerate(read)]


# Operators whose result is boolean whatever they are given; in place, it is stored as numbers.
_BOOLEAN = frozenset(
    f"aten::{name}"
    for name in (
        "eq", "ne", "lt", "le", "gt", "ge", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
        "logical_and", "logical_or", "logical_xor", "logical_not",
    )
)  # fmt: skip


def _result(call: Node, stored: torch.Tensor) -> torch.Tensor:
    """The fake result of a functional call: like what it is stored to, unless another dtype takes part."""
    tensors = [n.meta["val"] for n in call.all_input_nodes if isinstance(n.meta["val"], torch.Tensor)]
    if all(t.dtype == stored.dtype for t in tensors) and call.target._schema.name not in _BOOLEAN:  # type: ignore[union-attr]
        return stored
    args, kwargs = map_aggregate((call.args, call.kwargs), lambda a: a.meta["val"] if isinstance(a, Node) else a)
    with torch.no_grad():
        result: torch.Tensor = call.target(*args, **kwargs)  # type: ignore[operator]
    return result


def _computed(node: Node) -> Any:
    """The fake result of a call that somebody added to a captured program without it."""
    args, kwargs = map_aggregate((node.args, node.kwargs), lambda a: a.meta.get("val") if isinstance(a, Node) else a)
    with torch.no_grad():
        return node.target(*args, **kwargs)  # type: ignore[operator]


def _storages(node: Node) -> set[int]:
    """The storages of a node's tensors. Inactive dropout gives back its input, but its fake tensor is a copy."""
    if node.target is aten.dropout.default and (node.args[1] == 0 or node.args[2] is False):
        return _storages(node.args[0])  # type: ignore[arg-type]
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else (value,)
    return {storage_id(item) for item in values if isinstance(item, torch.Tensor)}


def _all_nodes(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        if (inlined := _inlined(node)) is not None:
            yield from _all_nodes(inlined[0])


def _inlined(node: Node) -> tuple[Graph, Sequence[Any]] | None:
    """The body and the operands of a call that only says how its body runs: gradients, recomputation, regions.
    An autocast region that casts is not one of them.
    """
    name = operator_name(node.target) if node.op == "call_function" else ""
    position = _REGIONS.get(name)
    if position is None or (name == "wrap_with_autocast" and node.args[2] is not False):
        return None
    body, operands = node.args[position], node.args[position + (2 if name == "invoke_subgraph" else 1) :]
    if name == "hints_wrapper":
        operands = operands[0]  # type: ignore[assignment]
    return _attribute(body).graph, operands  # type: ignore[arg-type]


def _attribute(node: Node) -> Any:
    """What a ``get_attr`` node names."""
    return operator.attrgetter(str(node.target))(node.graph.owning_module)


# Higher-order operators whose body is computed as it stands, with the position of the body among the arguments.
_REGIONS = {
    "wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4, "tag_activation_checkpoint": 0, "invoke_subgraph": 0,
    "hints_wrapper": 0,
}  # fmt: skip


def _shares(node: Node, storage: int) -> Node | None:
    """The argument that has its memory in ``storage``."""
    return next((n for n in node.all_input_nodes if storage in _storages(n)), None)


def _written_arguments(node: Node) -> list[Node]:
    """The nodes whose memory a call writes to, in the order in which its functional variant returns them."""
    target = node.target
    if target is aten.batch_norm.default:
        statistics = [node.args[3], node.args[4]]
        return [n for n in statistics if isinstance(n, Node)] if node.args[5] is True else []
    if node.op != "call_function" or not is_write(target):
        return []
    found: list[Node] = []
    for index, argument in enumerate(target._schema.arguments):  # type: ignore[union-attr]
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            found += [n for n in (value if isinstance(value, (list, tuple)) else (value,)) if isinstance(n, Node)]
    return found
