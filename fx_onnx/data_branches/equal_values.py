"""Numbers the values of several ONNX models, so that two values have one number if all data make them equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from hashlib import sha256

import onnx_ir as ir

from fx_onnx.capture.capture import Capture
from fx_onnx.data_branches.condition import CONDITION, DOMAIN
from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.small_constants import MAX_CONSTANT_BYTES, constant_key
from fx_onnx.onnx_model.weights import Weight, has_data, memory_key
from fx_onnx.passes.traversal import all_graphs, all_nodes, all_values, subgraphs

__all__ = ["Number", "Numbered", "Numbers", "operator_key", "outer_inputs", "reads"]

Number = tuple[int, int]
"""What computes a value, and which of its results it is."""
Numbers = dict[Hashable, int]
"""The numbers of what several models compute, by what identifies it."""
_DRAWS = frozenset(
    {"RandomUniform", "RandomNormal", "RandomUniformLike", "RandomNormalLike", "Multinomial", "Bernoulli", "Dropout"}
)


class Numbered:
    """The model of one path with the numbers of its values.

    Attributes:
        facts: the conditions on data on the path, in order.
        answers: what they are.
        model: the model.
        conditions: the numbers of the conditions.
        markers: the nodes that mark them.
        nodes: the nodes by number, in order.
        weights: the initializers by number.
        values: the number of each value of the main graph.
        of: the values by number.
    """

    def __init__(self, capture: Capture, model: ir.Model, numbers: Numbers) -> None:
        self.facts, self.answers = capture.conditions, tuple(condition.answer for condition in capture.conditions)
        self.model, self._numbers = model, numbers
        self.conditions: list[Number] = []
        self.markers: list[ir.Node] = []
        self.nodes: dict[int, ir.Node] = {}
        self.weights: dict[int, ir.Value] = {}
        self.values: dict[ir.Value, Number] = {}
        self.of: dict[Number, ir.Value] = {}
        self._draws = Counter[Hashable]()
        for value in model.graph.initializers.values():
            self.weights[self._define(value, ("weight", *_weight_key(value)))[0]] = value
        inputs = [value for value in model.graph.inputs if value not in self.values]
        for index, value in enumerate(inputs):
            self._define(value, ("input", index))
        for node in model.graph:
            if node.op_type == CONDITION and node.domain == DOMAIN:
                self.conditions.append(self._read(node.inputs[0]))
                self.markers.append(node)
                continue
            number = self._number(self._key(node))
            if number not in self.nodes:
                self.nodes[number] = node
            for index, value in enumerate(node.outputs):
                self._record(value, (number, index))

    def closure(self, numbers: Iterable[Number]) -> set[int]:
        """Returns what computes values: all that they read, directly or not."""
        needed: set[int] = set()
        waiting = list(numbers)
        while waiting:
            number, _ = waiting.pop()
            if number not in needed:
                needed.add(number)
                waiting += self._inputs(number)
        return needed

    def _inputs(self, number: int) -> Iterator[Number]:
        """Yields the numbers of what a computation reads; of none for a weight or an input."""
        read = outer_inputs(self.nodes[number]) if number in self.nodes else ()
        yield from (self.values[value] for value in read if value is not None)

    def _define(self, value: ir.Value, key: Hashable) -> Number:
        number = self._number(key), 0
        self._record(value, number)
        return number

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _record(self, value: ir.Value, number: Number) -> None:
        self.values[value] = number
        self.of.setdefault(number, value)

    def _read(self, value: ir.Value | None) -> Number:
        return (-1, 0) if value is None else self.values[value]

    def _key(self, node: ir.Node) -> Hashable:
        """Returns what identifies the results of a node; also its captured call if it draws random numbers.

        An operator of another domain may draw, too. The call has the same name on all paths up to the condition
        at which they differ.
        """
        key = operator_key(node), tuple(map(self._read, outer_inputs(node)))
        inner = [node, *(nested for body in subgraphs(node) for nested in all_nodes(body))]
        if not any(nested.op_type in _DRAWS or nested.domain for nested in inner):
            return key
        call = node.metadata_props.get(metadata.NAME_SCOPES, "")
        self._draws[call] += 1
        return key, call, self._draws[call], self.answers[: len(self.conditions)]


def reads(node: ir.Node) -> Iterator[tuple[ir.Node, int]]:
    """Yields where a node, or a node in its bodies, reads a value outside of the node: the reader and the index."""
    inside = {value for body in subgraphs(node) for value in all_values(body)}
    for inner in (node, *(nested for body in subgraphs(node) for nested in all_nodes(body))):
        yield from ((inner, index) for index, value in enumerate(inner.inputs) if value not in inside)


def outer_inputs(node: ir.Node) -> list[ir.Value | None]:
    """Returns what a node and its bodies read outside of the node, in the order of ``reads``."""
    return [reader.inputs[index] for reader, index in reads(node)]


def operator_key(node: ir.Node) -> Hashable:
    """Returns what identifies the operator and the attributes of a node, and what its bodies do with their values."""
    inside: dict[ir.Value, int] = {}
    for value in (value for body in subgraphs(node) for value in all_values(body)):
        inside[value] = len(inside)
    parts: list[Hashable] = []
    for inner in (node, *(nested for body in subgraphs(node) for nested in all_nodes(body))):
        attributes = sorted((name, _attribute_key(attribute)) for name, attribute in inner.attributes.items())
        kind = inner.domain, inner.op_type, inner.overload, inner.version, len(inner.outputs)
        parts.append((kind, tuple(attributes), tuple(None if v is None else inside.get(v, -1) for v in inner.inputs)))
    for body in (part for subgraph in subgraphs(node) for part in all_graphs(subgraph)):
        weights = tuple(_weight_key(value) for value in body.initializers.values())
        parts.append((len(body.inputs), len(body), weights, tuple(inside.get(value, -1) for value in body.outputs)))
    return tuple(parts)


def _attribute_key(attribute: ir.Attr) -> str:
    if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return ""
    content = _tensor_key(attribute.as_tensor()) if attribute.type is ir.AttributeType.TENSOR else attribute.value
    return repr((attribute.type, attribute.ref_attr_name, content))


def _weight_key(value: ir.Value) -> tuple[Hashable, ...]:
    """Returns what identifies an initializer: a weight of the module by its name, too."""
    tensor = value.const_value
    is_weight = metadata.INPUT_KIND in value.metadata_props
    return value.name if is_weight else "", None if tensor is None else _tensor_key(tensor)


def _tensor_key(tensor: ir.TensorProtocol) -> Hashable:
    is_large = tensor.nbytes > MAX_CONSTANT_BYTES
    if isinstance(tensor, Weight) and (not has_data(tensor) or (is_large and metadata.OF_STATE_DICT in tensor.meta)):
        return memory_key(tensor.raw)
    if not is_large:
        return constant_key(tensor)
    return tensor.dtype, tuple(tensor.shape.numpy()), sha256(tensor.tobytes()).digest()
