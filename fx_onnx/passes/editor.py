"""The editor through which passes change a graph: it keeps names, metadata and the worklist consistent."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.names import Names
from fx_onnx.onnx_model.small_constants import ConstantKey, array_key, constant_key
from fx_onnx.passes.matchers import initializer_tensor, is_read
from fx_onnx.passes.traversal import all_nodes, all_values, subgraphs

__all__ = ["Editor", "attributes_of", "clear_inputs"]

_TYPES_OF_LISTS = {int: ir.AttributeType.INTS, float: ir.AttributeType.FLOATS, str: ir.AttributeType.STRINGS}

# A new constant of at most this many bytes reuses an equal initializer of the graph.
_MAX_SHARED_BYTES = 1024


class Editor:
    """Edits one graph with its subgraphs, or one function.

    Attributes:
        model: the whole model.
        function: the function that is edited, which cannot hold initializers, or None for the graph.
        opset: the version of ONNX's default domain.
        added_nodes: how many nodes more the model has than when the editor was made.
    """

    def __init__(self, model: ir.Model, function: ir.Function | None = None) -> None:
        self.model, self.function = model, function
        graph = model.graph if function is None else function
        self.opset = graph.opset_imports.get("") or model.graph.opset_imports.get("", 0)
        self.added_nodes = 0
        self._queue: deque[ir.Node] = deque()
        self._queued: set[ir.Node] = set()
        self._names: Names | None = None
        self._constants: dict[ConstantKey, ir.Value] | None = None

    # ------------------------------------------------------------ worklist

    def enqueue(self, nodes: Iterable[ir.Node]) -> None:
        """Adds nodes to the worklist. A node that is in it already is not added twice."""
        for node in nodes:
            if node not in self._queued:
                self._queued.add(node)
                self._queue.append(node)

    def worklist(self) -> Iterator[ir.Node]:
        """Removes and yields the nodes of the worklist, first in first out, until it is empty."""
        while self._queue:
            node = self._queue.popleft()
            self._queued.discard(node)
            yield node

    # ------------------------------------------------------------ new values

    def unique_name(self, name: str) -> str:
        """Returns ``name``, with a number as suffix if a value of the graph or its subgraphs has this name already."""
        if self._names is None:
            graph = self.model.graph if self.function is None else self.function
            self._names = Names(value.name for value in all_values(graph))
        return self._names.unique(name)

    def initializer(self, tensor: ir.TensorProtocol, name: str) -> ir.Value:
        """Adds an initializer to the main graph, where every subgraph can read it, and returns its value."""
        tensor.name = self.unique_name(name)
        kind, shape = ir.TensorType(tensor.dtype), cast(ir.Shape, tensor.shape)
        value = ir.Value(name=tensor.name, shape=shape, type=kind, const_value=tensor)
        self.model.graph.register_initializer(value)
        return value

    def constant(self, array: npt.NDArray[Any] | Sequence[int], node: ir.Node) -> ir.Value:
        """Returns a small constant that ``node`` may read; a list of integers becomes INT64.

        In the graph it is an initializer, which equal constants share. In a function it is a new Constant node.
        """
        array = np.asarray(array, dtype=None if isinstance(array, (np.ndarray, np.generic)) else np.int64)
        if self.function is not None and node.graph is not None:
            props = dict(node.metadata_props)
            attributes, name = {"value": ir.Tensor(array)}, self.unique_name("constant")
            made = ir.node("Constant", [], attributes, name=name, metadata_props=props)
            made.outputs[0].name = made.name
            self.insert_before(made, node)
            return made.outputs[0]
        if self._constants is None:
            self._constants = dict(_small_constants(self.model.graph))
        key = array_key(array)
        if key not in self._constants:
            self._constants[key] = self.initializer(ir.Tensor(array), "constant_folded")
        return self._constants[key]

    # ------------------------------------------------------------ nodes

    def insert_before(self, new: ir.Node, node: ir.Node) -> None:
        """Inserts a new node before ``node``."""
        if node.graph is not None:
            node.graph.insert_before(node, new)
            self.added_nodes += 1
        self.enqueue([new])

    def insert_after(self, new: ir.Node, value: ir.Value) -> None:
        """Inserts a new node right after the producer of ``value``, or at the start of the graph if it has none."""
        producer = value.producer()
        if producer is not None and producer.graph is not None:
            producer.graph.insert_after(producer, new)
        else:
            graph = value.graph or self.model.graph
            graph.insert_before(graph[0], new)
        self.added_nodes += 1
        self.enqueue([new])

    def replace(
        self,
        node: ir.Node,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any] | None = None,
        absorbed: Sequence[ir.Node] = (),
        domain: str = "",
    ) -> None:
        """Turns ``node`` into another operation with the same results, and removes producers that become unused.

        Args:
            node: the node; it keeps its outputs, its name and the names of its outputs.
            op_type: the new operator.
            inputs: the new inputs.
            attributes: the new attributes as Python values or ``ir.Attr``; None keeps the present ones.
            absorbed: the producers whose work the new operation does too. Their metadata is merged into the node's, so
                that each of their FX nodes can still be found.
            domain: the domain of the operator, of which the model imports version 1; empty for ONNX's default domain.
        """
        if domain:
            self.model.graph.opset_imports.setdefault(domain, 1)
        before = [producer for x in node.inputs if x is not None and (producer := x.producer()) is not None]
        node.op_type, node.domain = op_type, domain
        node.resize_inputs(len(inputs))
        for index, value in enumerate(inputs):
            if node.inputs[index] is not value:
                node.replace_input_with(index, value)
        if attributes is not None:
            converted = attributes_of(attributes)
            node.attributes.data.clear()  # clear and update of UserDict visit one attribute after the other
            node.attributes.data.update(converted)
        for other in absorbed:
            node.metadata_props.update(metadata.merged(other.metadata_props, node.metadata_props))
        for producer in before:
            self.remove_if_unused(producer)

    def replace_with_value(self, node: ir.Node, value: ir.Value) -> bool:
        """Replaces the first result of ``node`` by ``value`` and removes the node. Returns whether that was possible.

        If the graph returns the result, the value takes its name, its metadata and its shape. That is impossible where
        the value has no producer in the same graph, or is an output of a graph itself.
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
        self.enqueue([use.node for use in output.uses()])
        output.replace_all_uses_with(value, replace_graph_outputs=True)
        self.remove_if_unused(node)
        return True

    def replace_result(self, output: ir.Value, value: ir.Value) -> None:
        """Makes all consumers of ``output`` read a new value, which gets its name, type and shape.

        The node keeps ``output``, which nothing reads then, until the caller resizes or removes the node.
        """
        name, output.name = output.name, None
        value.type, value.shape = output.type, output.shape
        value.metadata_props.update(output.metadata_props)
        output.replace_all_uses_with(value, replace_graph_outputs=True)
        value.name = name

    def remove_if_unused(self, node: ir.Node | None) -> None:
        """Removes the node if nothing reads its results, then each of its producers that becomes unused."""
        candidates = [node]
        while candidates:
            candidate = candidates.pop()
            if candidate is None or candidate.graph is None or any(map(is_read, candidate.outputs)):
                continue
            candidates += [x.producer() for x in candidate.inputs if x is not None and x.producer() is not None]
            self.added_nodes -= 1
            for subgraph in subgraphs(candidate):
                self.added_nodes -= sum(1 for _ in all_nodes(subgraph))
                candidates += [x.producer() for inner in all_nodes(subgraph) for x in inner.inputs if x is not None]
                clear_inputs(subgraph)
            graph = candidate.graph
            candidate.resize_inputs(0)
            graph.remove(candidate)


def attributes_of(values: Mapping[str, Any]) -> dict[str, ir.Attr]:
    """Returns attributes by name, from attributes and Python values; None is no attribute.

    The type of a list is that of its first element, because onnx_ir takes long to find it out.
    """
    converted: dict[str, ir.Attr] = {}
    for name, value in values.items():
        if type(value) is ir.Attr:
            converted[name] = value
        elif value is not None:
            kind = _TYPES_OF_LISTS.get(type(value[0])) if isinstance(value, (list, tuple)) and value else None
            converted[name] = ir.convenience.convert_attribute(name, value, kind)
    return converted


def clear_inputs(subgraph: ir.Graph) -> None:
    """Removes the inputs of all nodes, so that a removed subgraph does not count as a consumer of outer values."""
    for inner in all_nodes(subgraph):
        inner.resize_inputs(0)


def _small_constants(graph: ir.Graph) -> Iterator[tuple[ConstantKey, ir.Value]]:
    """Yields the small constants among the initializers by dtype, shape and bytes, so that 0.0 and -0.0 differ."""
    for value in graph.initializers.values():
        tensor = value.const_value
        if type(tensor) is ir.Tensor and tensor.nbytes <= _MAX_SHARED_BYTES and initializer_tensor(value) is tensor:
            yield constant_key(tensor), value
