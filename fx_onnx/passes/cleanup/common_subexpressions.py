"""Common-subexpression elimination."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import onnx_ir as ir

from fx_onnx.core import metadata
from fx_onnx.passes.matchers import MAX_CONSTANT_BYTES
from fx_onnx.passes.rewriter import Pass
from fx_onnx.passes.traversal import graphs_of, subgraphs

__all__ = ["EliminateCommonSubexpressions"]

_EXCLUDED = frozenset(
    {
        "RandomUniform", "RandomNormal", "RandomUniformLike", "RandomNormalLike", "Multinomial", "Bernoulli", "Dropout",
        "DequantizeLinear",  # runtimes expect one DequantizeLinear for each consumer, as PT2E writes it
    }
)  # fmt: skip
# The metadata of a node lists at most this many FX nodes. Without a limit, the one mask that replaces the masks of all
# layers would list the FX nodes of every layer.
_MAX_ORIGINS = 8


class EliminateCommonSubexpressions(Pass):
    """f(x), f(x) with equal inputs and attributes → one f(x), in the graph, in each subgraph and in each function.

    Legal because operators of ONNX's domains are pure, except the random ones; operators of other domains are left
    alone. A DequantizeLinear stays with each consumer. A node whose result the graph returns stays, with its name.
    ``docs/passes.md`` compares this pass with onnx_ir's CommonSubexpressionEliminationPass.
    """

    name = "eliminate_common_subexpressions"

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Visits each node once, producers first."""
        return ir.passes.PassResult(model, modified=sum(map(_eliminate, graphs_of(model))) > 0)


def _eliminate(graph: ir.Graph | ir.Function) -> bool:
    """Replaces duplicates in a graph and its subgraphs, and returns whether there were any."""
    known: dict[Hashable, list[ir.Node]] = {}
    modified = False
    for node in graph:
        bodies = subgraphs(node)
        for body in bodies:
            modified |= _eliminate(body)
        if bodies or node.domain not in ("", "ai.onnx.ml") or node.op_type in _EXCLUDED:
            continue
        present = len(node.outputs) == 1 or tuple([bool(output.name) for output in node.outputs])
        similar = known.setdefault((node.op_type, node.domain, present, node.inputs), [])
        twins = [each for each in similar if _same_attributes(each, node)]
        if not twins:
            similar.append(node)
        elif not any(output.is_graph_output() for output in node.outputs):
            _replace(graph, node, twins[0])
            modified = True
    return modified


def _replace(graph: ir.Graph | ir.Function, node: ir.Node, twin: ir.Node) -> None:
    for old, new in zip(node.outputs, twin.outputs, strict=True):
        old.replace_all_uses_with(new)
    if twin.metadata_props.get(metadata.FX_NODE, "").count("\n") < _MAX_ORIGINS - 1:
        twin.metadata_props.update(metadata.merged(twin.metadata_props, node.metadata_props))
    graph.remove(node, safe=True)


def _same_attributes(first: ir.Node, second: ir.Node) -> bool:
    if not first.attributes and not second.attributes:
        return True
    if first.attributes.keys() != second.attributes.keys():
        return False
    return all(_equal(attr, second.attributes[name]) for name, attr in first.attributes.items())


def _equal(first: ir.Attr, second: ir.Attr) -> bool:
    if first.type != second.type or first.ref_attr_name != second.ref_attr_name:
        return False
    if first.is_ref():
        return True
    if first.type == ir.AttributeType.TENSOR:
        return _same_tensor(first.value, second.value)
    if first.type in (ir.AttributeType.FLOAT, ir.AttributeType.FLOATS):  # by their text, because 0.0 == -0.0
        return repr(first.value) == repr(second.value)
    return bool(first.value == second.value)


def _same_tensor(first: Any, second: Any) -> bool:
    if first.dtype != second.dtype or first.shape != second.shape or first.nbytes > MAX_CONSTANT_BYTES:
        return False
    return bool(first.tobytes() == second.tobytes())
