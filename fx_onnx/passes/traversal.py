"""Iteration over the nodes and values of a graph and of the subgraphs of its control-flow nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import onnx_ir as ir

__all__ = ["all_graphs", "all_initializers", "all_nodes", "all_values", "graphs_of", "subgraphs", "without_new_unread"]

_CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})
_NO_SUBGRAPHS: tuple[ir.Graph, ...] = ()
_GRAPH_TYPES = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def graphs_of(model: ir.Model) -> list[ir.Graph | ir.Function]:
    """Returns the main graph of a model, then its local functions; ``all_nodes`` goes through the subgraphs of each."""
    return [model.graph, *model.functions.values()]


def subgraphs(node: ir.Node) -> Sequence[ir.Graph]:
    """Returns the graphs among the attributes of a node: the branches of an If, the body of a Loop."""
    if not node.domain and node.op_type not in _CONTROL_FLOW:  # a fast exit for nearly all nodes
        return _NO_SUBGRAPHS
    bodies: list[ir.Graph] = []
    for attr in node.attributes.values():
        if attr.type in _GRAPH_TYPES and not attr.is_ref():
            bodies.extend([attr.as_graph()] if attr.type == ir.AttributeType.GRAPH else attr.as_graphs())
    return bodies


def all_graphs(graph: ir.Graph) -> Iterator[ir.Graph]:
    """Yields the graph and all subgraphs inside it. Faster than ``ir.Model.graphs``, which visits all attributes."""
    yield graph
    for node in graph:
        if node.op_type in _CONTROL_FLOW or node.domain:  # no call of ``subgraphs`` for nearly all nodes
            for subgraph in subgraphs(node):
                yield from all_graphs(subgraph)


def all_nodes(graph: ir.Graph | ir.Function) -> Iterator[ir.Node]:
    """Yields every node of the graph and of the subgraphs inside it, in order."""
    for node in graph:
        yield node
        if node.op_type in _CONTROL_FLOW or node.domain:  # no call of ``subgraphs`` for nearly all nodes
            for subgraph in subgraphs(node):
                yield from all_nodes(subgraph)


def all_values(graph: ir.Graph | ir.Function) -> Iterator[ir.Value]:
    """Yields every value of the graph and of the subgraphs inside it: inputs, initializers and results of nodes."""
    yield from graph.inputs
    if isinstance(graph, ir.Graph):
        yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs
        if node.op_type in _CONTROL_FLOW or node.domain:
            for subgraph in subgraphs(node):
                yield from all_values(subgraph)


def all_initializers(graph: ir.Graph) -> list[ir.Value]:
    """Returns the initializers of the graph and of the subgraphs inside it, in order. The caller may change them."""
    return [value for part in all_graphs(graph) for value in part.initializers.values()]


@contextmanager
def without_new_unread(graph: ir.Graph) -> Iterator[None]:
    """Removes the initializers at the end that the rewrites within the context leave unread.

    ONNX Runtime warns about them each time it loads the model. Those that nothing read before, such as the weights that
    an export keeps, stay.
    """
    kept = {value.name for value in all_initializers(graph) if not value.uses()}
    yield
    for part in all_graphs(graph):
        for name, value in list(part.initializers.items()):
            if not (name in kept or value.uses() or value.is_graph_output() or value.is_graph_input()):
                del part.initializers[name]
