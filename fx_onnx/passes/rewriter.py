"""What the passes share: a pass that looks at one node at a time, one walk for any number of them, and edits."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fx_onnx.core import metadata
from fx_onnx.core.names import Names
from fx_onnx.passes.matchers import weight_of

__all__ = ["Editor", "Pass", "Rewrite", "apply", "bodies", "nodes_of", "walk"]

# A constant that is made anew and equals one that is there, of at most this size, is that one.
_MAX_SHARED_BYTES = 1024
_Key = tuple[ir.DataType, tuple[int, ...], bytes]
_CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_NO_BODIES: tuple[ir.Graph, ...] = ()
_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


class Pass(ir.passes.InPlacePass):
    """An onnx_ir pass with a name by which it can be switched off."""

    name: ClassVar[str]


class Rewrite(Pass):
    """A pass that looks at each node by itself; neighbouring ones share one walk (see ``walk``)."""

    op_types: ClassVar[tuple[str, ...]]
    since: ClassVar[int] = 0
    """The first opset that has what the pass writes; below it the pass does nothing."""

    @abstractmethod
    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites ``node``, of one of ``op_types`` in ONNX's own domain; says whether it did."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Runs this rewrite alone."""
        return ir.passes.PassResult(model, walk(model, (self,)))


def apply(model: ir.Model, passes: Iterable[Pass]) -> ir.Model:
    """The model after the passes in order, changed in place; neighbouring rewrites share one walk."""
    for together, group in itertools.groupby(passes, lambda each: isinstance(each, Rewrite)):
        if together:
            walk(model, [each for each in group if isinstance(each, Rewrite)])
        else:
            for each in group:
                model = each(model).model
    return model


def walk(model: ir.Model, rewrites: Sequence[Rewrite]) -> bool:
    """Offers every node of the graph, of all bodies and of all functions to the rewrites for its op_type.

    A node that was rewritten, and the nodes around it, are offered again. Says whether anything changed.
    """
    modified = False
    for function in (None, *model.functions.values()):
        editor = Editor(model, function)
        graph = model.graph if function is None else function
        by_type = _by_type(rewrites, graph.opset_imports.get("", 0))
        editor.offer(node for node in nodes_of(graph) if node.op_type in by_type)
        for node in editor.offered():
            found = by_type.get(node.op_type)
            if found is None or node.domain or node.graph is None or (function and _refers(node)):
                continue
            for each in found:
                if each.rewrite(node, editor):
                    modified = True
                    editor.offer(_around(node))
                    break
    return modified


def _by_type(rewrites: Sequence[Rewrite], opset: int) -> dict[str, list[Rewrite]]:
    found: dict[str, list[Rewrite]] = {}
    for each in rewrites:
        if each.since <= opset:
            for op_type in each.op_types:
                found.setdefault(op_type, []).append(each)
    return found


def _around(node: ir.Node) -> list[ir.Node]:
    """The producers of the node's inputs, the node, and its users: what a rewrite of it may make possible."""
    before = [x.producer() for x in node.inputs if x is not None]
    after = [use.node for output in node.outputs for use in output.uses()]
    return [x for x in (*before, node, *after) if x is not None]


def _refers(node: ir.Node) -> bool:
    """Whether an attribute is that of the function around it, whose value is not known."""
    return any(attr.is_ref() for attr in node.attributes.values())


# ---------------------------------------------------------------- walking


def bodies(node: ir.Node) -> Sequence[ir.Graph]:
    """The graphs that a control flow node holds."""
    if not node.domain and node.op_type not in _CONTROL_FLOW:
        return _NO_BODIES
    found: list[ir.Graph] = []
    for attr in node.attributes.values():
        if attr.type in _GRAPHS and not attr.is_ref():
            found.extend([attr.as_graph()] if attr.type == ir.AttributeType.GRAPH else attr.as_graphs())
    return found


def nodes_of(graph: ir.Graph | ir.Function) -> Iterator[ir.Node]:
    """Every node of the graph and of the bodies inside it, in order."""
    for node in graph:
        yield node
        for body in bodies(node):
            yield from nodes_of(body)


# ---------------------------------------------------------------- edits


class Editor:
    """Changes one graph, with its bodies, or one function; keeps names, metadata and the queue of the walk right.

    Attributes:
        model: the whole model.
        function: the function that is being changed, which can hold no initializers, or None.
        opset: the version of ONNX's default domain.
    """

    def __init__(self, model: ir.Model, function: ir.Function | None = None) -> None:
        self.model, self.function = model, function
        graph = model.graph if function is None else function
        self.opset = graph.opset_imports.get("") or model.graph.opset_imports.get("", 0)
        self._queue: deque[ir.Node] = deque()
        self._queued: set[ir.Node] = set()
        self._names: Names | None = None
        self._constants: dict[_Key, ir.Value] | None = None

    def offer(self, nodes: Iterable[ir.Node]) -> None:
        """Has the walk come to these nodes (again), each once however often it is offered meanwhile."""
        for node in nodes:
            if node not in self._queued:
                self._queued.add(node)
                self._queue.append(node)

    def offered(self) -> Iterator[ir.Node]:
        """The nodes that were offered, in order, until there are none."""
        while self._queue:
            node = self._queue.popleft()
            self._queued.discard(node)
            yield node

    def unique(self, name: str) -> str:
        """``name``, with a number if a value of the graph has it already."""
        if self._names is None:
            graph = self.model.graph if self.function is None else self.function
            self._names = Names(value.name for value in _values(graph))
        return self._names.unique(name)

    def weight(self, tensor: ir.TensorProtocol, name: str) -> ir.Value:
        """A new initializer, of the whole model's graph, so that every body sees it."""
        tensor.name = self.unique(name)
        shape = ir.Shape(tensor.shape.numpy())
        value = ir.Value(name=tensor.name, shape=shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
        self.model.graph.register_initializer(value)
        return value

    def constant(self, array: npt.NDArray[Any] | Sequence[int], node: ir.Node) -> ir.Value:
        """A small constant for ``node``; integers without a dtype are INT64. In a function it is a Constant node."""
        array = np.asarray(array, dtype=None if isinstance(array, np.ndarray) else np.int64)
        tensor = ir.Tensor(array)
        if self.function is not None and node.graph is not None:
            props = dict(node.metadata_props)
            made = ir.node("Constant", [], {"value": tensor}, name=self.unique("constant"), metadata_props=props)
            made.outputs[0].name = made.name
            self.insert(made, node)
            return made.outputs[0]
        if self._constants is None:
            self._constants = dict(_small_constants(self.model.graph))
        key = (tensor.dtype, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.weight(tensor, "constant_folded")
        return self._constants[key]

    def insert(self, new: ir.Node, node: ir.Node) -> None:
        """Puts a new node before ``node``."""
        if node.graph is not None:
            node.graph.insert_before(node, new)
        self.offer([new])

    def insert_after(self, new: ir.Node, value: ir.Value) -> None:
        """Puts a new node right after what makes ``value``: at the start of its graph, if it is given there."""
        producer = value.producer()
        if producer is not None and producer.graph is not None:
            producer.graph.insert_after(producer, new)
        else:
            graph = value.graph or self.model.graph
            graph.insert_before(graph[0], new)
        self.offer([new])

    def change(
        self,
        node: ir.Node,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        absorbed: Sequence[ir.Node] = (),
    ) -> None:
        """Makes ``node`` another node with the same results; what it no longer reads is removed if it has no user.

        Args:
            node: keeps its outputs, their names and its own.
            op_type: the operator of ONNX's own domain that it becomes.
            inputs: its new inputs.
            attributes: its new attributes, Python values or ``ir.Attr``; None keeps them.
            absorbed: the earlier nodes whose work it now does as well, whose metadata it takes in.
        """
        before = [x.producer() for x in node.inputs if x is not None]
        node.op_type = op_type
        node.resize_inputs(len(inputs))
        for index, value in enumerate(inputs):
            if node.inputs[index] is not value:
                node.replace_input_with(index, value)
        if attributes is not None:
            found = [x if isinstance(x, ir.Attr) else ir.convenience.convert_attribute(n, x, None)
                     for n, x in attributes.items() if x is not None]  # fmt: skip
            node.attributes.clear()
            node.attributes.update({attr.name: attr for attr in found})
        for each in absorbed:
            merged = metadata.merged(each.metadata_props, node.metadata_props)
            node.metadata_props.update(merged)
        for producer in before:
            self.drop(producer)

    def forward(self, node: ir.Node, value: ir.Value) -> bool:
        """Removes ``node``, whose first result is ``value``: its users read that. False where a name forbids it.

        In the place of an output of the graph the value takes its name, its metadata and the names of its dims.
        """
        output = node.outputs[0]
        if output.is_graph_output():
            producer = value.producer()
            if producer is None or value.is_graph_output() or producer.graph is not node.graph:
                return False
            name, output.name = output.name, None
            value.name = name
            if len(producer.outputs) == 1:
                producer.name = name
            value.metadata_props.update(output.metadata_props)
            value.shape = value.shape if output.shape is None else output.shape
        if value.shape is None:
            value.shape = output.shape
        if value.type is None:
            value.type = output.type
        self.offer([use.node for use in output.uses()])
        output.replace_all_uses_with(value, replace_graph_outputs=True)
        self.drop(node)
        return True

    def drop(self, node: ir.Node | None) -> None:
        """Removes the node if nothing reads it, and then those before it that only it read."""
        doubtful = [node]
        while doubtful:
            each = doubtful.pop()
            if each is None or each.graph is None or any(x.uses() or x.is_graph_output() for x in each.outputs):
                continue
            doubtful += [x.producer() for x in each.inputs if x is not None]
            for body in bodies(each):
                doubtful += [x.producer() for inner in nodes_of(body) for x in inner.inputs if x is not None]
                _detach(body)
            each.graph.remove(each, safe=True)


def _detach(body: ir.Graph) -> None:
    """Lets the nodes of a removed body no longer count as users of outer values."""
    for inner in nodes_of(body):
        inner.resize_inputs(0)


def _small_constants(graph: ir.Graph) -> Iterator[tuple[_Key, ir.Value]]:
    """The constants that the graph has already, by dtype, shape and bytes (so 0.0 and -0.0 stay two)."""
    for value in graph.initializers.values():
        tensor = value.const_value
        if type(tensor) is ir.Tensor and tensor.nbytes <= _MAX_SHARED_BYTES and weight_of(value) is tensor:
            yield (tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes()), value


def _values(graph: ir.Graph | ir.Function) -> Iterator[ir.Value]:
    """Every value of the graph and of the bodies inside it."""
    yield from graph.inputs
    if isinstance(graph, ir.Graph):
        yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs
        for body in bodies(node):
            yield from _values(body)
