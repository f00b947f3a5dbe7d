"""The graph of a model as data for the reports: its modules as a tree, its nodes, its values and its source lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

import onnx_ir as ir

from fx_onnx.files.serialization import describe
from fx_onnx.messages.source_lines import TracedLine, traced_lines
from fx_onnx.onnx_model import metadata
from fx_onnx.passes.traversal import graphs_of, subgraphs

__all__ = ["GraphFacts", "ModuleFacts", "NodeFacts", "Source", "ValueFacts", "graph_facts"]

_TARGET = re.compile(r"\[target=(?:torch\.ops\.)?([^\]]+)\]")
_LONGEST_ATTRIBUTE = 120


@dataclass
class ModuleFacts:
    """One call of a module, or one body of a control-flow node.

    Attributes:
        path: the path of the module, for example ``encoder.layer.0``; ``path@1`` for its second call.
        label: the path without that of the module around it, or the name of the attribute that holds the body.
        kind: the class of the module, or the operator of the control-flow node.
        parent: the index of the module around it; None for the whole graph.
        nodes: the number of nodes inside it, those of inner modules included.
        parameters: the number of elements of its weights, those of inner modules included.
    """

    path: str
    label: str
    kind: str
    parent: int | None
    nodes: int = 0
    parameters: int = 0


@dataclass(frozen=True)
class Source:
    """Where nodes come from.

    Attributes:
        operators: the ATen operators, or other targets of FX nodes, without repetitions.
        fx: the text of the FX nodes.
        frames: the source lines, the innermost first.
    """

    operators: tuple[str, ...]
    fx: str
    frames: tuple[TracedLine, ...]


@dataclass(frozen=True)
class NodeFacts:
    """One ONNX node; modules, values and sources are indices.

    Attributes:
        name: the name of the node.
        op_type: the operator, with its domain if that is not ONNX's own.
        module: the innermost module that holds all that it is for; see ``_Reader._share``.
        source: where it comes from; None if the model does not say.
        inputs: the values that it reads.
        outputs: its results.
        attributes: the attributes as text.
        body: for a control-flow node, the module that holds its bodies.
    """

    name: str
    op_type: str
    module: int
    source: int | None
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attributes: str
    body: int | None = None


@dataclass(frozen=True)
class ValueFacts:
    """A value of the graph: its name, its type as text, and whether it is a weight or a constant."""

    name: str
    type: str
    is_initializer: bool


@dataclass
class GraphFacts:
    """The main graph of a model, or one of its local functions.

    Attributes:
        name: the name of the function; empty for the main graph.
        modules: the modules; the first one is the whole graph, and a module is listed after the one around it.
        nodes: the nodes in order, those of bodies of control flow after the node that has them.
        values: the values that nodes read or compute.
        sources: where the nodes come from.
        inputs: the indices of the inputs, without weights.
        outputs: the indices of the outputs.
    """

    name: str
    modules: list[ModuleFacts] = field(default_factory=list)
    nodes: list[NodeFacts] = field(default_factory=list)
    values: list[ValueFacts] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def modules_of(self, index: int) -> Iterator[int]:
        """Yields the module and every module around it, the whole graph last."""
        at: int | None = index
        while at is not None:
            yield at
            at = self.modules[at].parent

    def producers(self) -> dict[str, int]:
        """Returns the module that computes each value, by the name of the value."""
        return {self.values[value].name: node.module for node in self.nodes for value in node.outputs}


def graph_facts(model: ir.Model) -> list[GraphFacts]:
    """Returns the facts of the main graph, then those of each local function."""
    return [_Reader(graph).facts for graph in graphs_of(model)]


class _Reader:
    """Reads one graph.

    Attributes:
        facts: the result.
    """

    def __init__(self, graph: ir.Graph | ir.Function) -> None:
        name = f"{graph.domain}::{graph.name}" if isinstance(graph, ir.Function) else ""
        self.facts = GraphFacts(name, [ModuleFacts("", "", "", None)])
        self._modules: dict[tuple[int, str], int] = {}
        self._values: dict[ir.Value, int] = {}
        self._sources: dict[tuple[str, str, str], int] = {}
        self._bodies: set[int] = set()
        self._owners: dict[int, int] = {}
        self.facts.inputs += [self._value(value) for value in graph.inputs if not value.is_initializer()]
        self._read(graph, 0)
        self.facts.outputs += [self._value(value) for value in graph.outputs]
        self._share()
        self._count()

    def _read(self, graph: ir.Graph | ir.Function, body: int) -> None:
        """Reads the nodes of a graph, or of a body whose module is ``body``."""
        for node in graph:
            index = self._module(node, body)
            inner = [attribute for attribute in node.attributes.values() if _holds_graphs(attribute)]
            own = self._child(index, node.name or node.op_type, node.op_type, node.name or "") if inner else None
            self.facts.nodes.append(
                NodeFacts(
                    str(node.name or node.outputs[0].name or ""),
                    f"{node.domain}::{node.op_type}" if node.domain else node.op_type,
                    index,
                    self._source(node),
                    tuple(self._value(value, index) for value in node.inputs if value is not None),
                    tuple(self._value(value) for value in node.outputs),
                    ", ".join(_attribute(attr) for attr in node.attributes.values() if not _holds_graphs(attr)),
                    own,
                )
            )
            if own is not None:
                self._read_bodies(node, own)

    def _read_bodies(self, node: ir.Node, own: int) -> None:
        labels = [name for name, attribute in node.attributes.items() if _holds_graphs(attribute)]
        for number, inner in enumerate(subgraphs(node)):
            label = labels[number] if number < len(labels) else f"body {number}"
            body = self._child(own, label, "body", label)
            self._bodies.add(body)
            self._read(inner, body)

    def _module(self, node: ir.Node, body: int) -> int:
        """Returns the innermost module of a node; a body of control flow holds only modules that begin inside it."""
        around = [self.facts.modules[index].path for index in self.facts.modules_of(body)]
        index = body
        for path, kind in metadata.module_scopes(node.metadata_props):
            if not path and not body:
                self.facts.modules[0].kind = self.facts.modules[0].kind or kind
            elif path and path not in around:
                parent = self.facts.modules[index].path
                label = path.removeprefix(f"{parent}.") if parent else path
                index = self._child(index, label, kind, path)
        return index

    def _child(self, parent: int, label: str, kind: str, path: str) -> int:
        key = (parent, path)
        if key not in self._modules:
            self._modules[key] = len(self.facts.modules)
            self.facts.modules.append(ModuleFacts(path, label, kind, parent))
        return self._modules[key]

    def _value(self, value: ir.Value, reader: int | None = None) -> int:
        """Returns the index of a value. ``reader`` is the module of a node that reads it."""
        if value not in self._values:
            self._values[value] = len(self.facts.values)
            self.facts.values.append(ValueFacts(str(value.name), describe(value), value.is_initializer()))
            if reader is not None and value.is_initializer() and value.const_value is not None:
                self._count_parameters(value, reader)
        return self._values[value]

    def _count_parameters(self, value: ir.Value, reader: int) -> None:
        """Counts a weight for the module that has it by its name, or else for the first module that reads it."""
        owners = [index for index in self.facts.modules_of(reader) if _owns(self.facts.modules[index].path, value)]
        size = value.const_value.size if value.const_value is not None else 0
        for index in self.facts.modules_of(owners[0] if owners else reader):
            self.facts.modules[index].parameters += size
        self._owners[self._values[value]] = sum(1 << index for index in owners)

    def _share(self) -> None:
        """Moves each node that several modules use to the module around them, so that equal layers have equal nodes.

        The first of them has computed the node for the others: a mask, a size, the angles of the positions. A result
        that is the module's own stays: it depends on the module's weights, or only other modules read it.
        """
        facts = self.facts
        first = [node.module for node in facts.nodes]  # the modules before any node is moved
        weights = self._weights()
        readers: dict[int, list[int]] = {}
        for index, node in enumerate(facts.nodes):
            for value in node.inputs:
                readers.setdefault(value, []).append(index)
        for index, node in reversed(list(enumerate(facts.nodes))):
            users = [user for value in node.outputs for user in readers.get(value, ())]
            around = self._around([facts.nodes[user].module for user in users])
            inside = list(facts.modules_of(node.module))
            if around not in inside[1:] or node.body is not None:
                continue
            left = inside[: inside.index(around)]
            is_used = any(left[-1] in facts.modules_of(first[user]) for user in users)
            if is_used and not weights[index] >> left[-1] & 1 and self._bodies.isdisjoint(left):
                facts.nodes[index] = replace(node, module=around)

    def _weights(self) -> list[int]:
        """Returns for each node the modules on whose weights it depends, one bit each."""
        weights: list[int] = []
        by_value = dict(self._owners)
        for node in self.facts.nodes:
            weights.append(reduce(int.__or__, (by_value.get(value, 0) for value in node.inputs), 0))
            by_value |= dict.fromkeys(node.outputs, weights[-1])
        return weights

    def _around(self, modules: list[int]) -> int | None:
        """Returns the innermost module around several ones; None if there is none of them."""
        chains = [list(self.facts.modules_of(index)) for index in dict.fromkeys(modules)]
        return next((index for index in chains[0] if all(index in chain for chain in chains)), None) if chains else None

    def _source(self, node: ir.Node) -> int | None:
        props = node.metadata_props
        texts = props.get(metadata.FX_NODE, ""), props.get(metadata.STACK_TRACE, ""), _scope_target(props)
        if not any(texts):
            return None
        if texts not in self._sources:
            self._sources[texts] = len(self.facts.sources)
            fx, trace, target = texts
            operators = tuple(dict.fromkeys(_TARGET.findall(fx))) or ((target,) if target else ())
            self.facts.sources.append(Source(operators, fx, tuple(dict.fromkeys(reversed(traced_lines(trace))))))
        return self._sources[texts]

    def _count(self) -> None:
        for node in self.facts.nodes:
            for index in self.facts.modules_of(node.module):
                self.facts.modules[index].nodes += 1


def _owns(path: str, value: ir.Value) -> bool:
    return bool(path) and str(value.name).startswith(f"{path.partition('@')[0]}.")


def _scope_target(props: Mapping[str, str]) -> str:
    """Returns the target at the end of a namespace: ``aten.relu.default`` in ``: Net/relu: aten.relu.default``."""
    return props.get(metadata.NAMESPACE, "").rpartition("/")[2].partition(": ")[2]


def _holds_graphs(attribute: ir.Attr) -> bool:
    return attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def _attribute(attribute: ir.Attr) -> str:
    if attribute.is_ref():
        return f"{attribute.name}=@{attribute.ref_attr_name}"
    if attribute.type in (ir.AttributeType.TENSOR, ir.AttributeType.TENSORS):
        return f"{attribute.name}=tensor"
    text = str(attribute.value)
    return f"{attribute.name}={text if len(text) <= _LONGEST_ATTRIBUTE else text[:_LONGEST_ATTRIBUTE] + '...'}"
