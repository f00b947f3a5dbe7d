"""Elimination of nodes that compute what others compute, or what nothing reads."""

from __future__ import annotations

from collections.abc import Hashable, MutableMapping
from typing import Any

import onnx_ir as ir
from onnx_ir.passes import common

from fx_onnx.onnx_model import metadata
from fx_onnx.passes.editor import clear_inputs
from fx_onnx.passes.matchers import MAX_CONSTANT_BYTES, is_read
from fx_onnx.passes.rewriter import Pass
from fx_onnx.passes.traversal import graphs_of, subgraphs

__all__ = ["EliminateCommonSubexpressions", "EliminateDeadCode"]

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
        twins = [other for other in similar if _same_attributes(other, node)]
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


# op_type → how many outputs are required; unused outputs after these are removed from the end.
_REQUIRED = {"MaxPool": 1, "LayerNormalization": 1, "RMSNormalization": 1, "Dropout": 1, "Attention": 1}

# ONNX: an Attention that has past keys and values returns the present ones.
_REQUIRED_OF_ATTENTION_WITH_PAST = 3


class EliminateDeadCode(Pass):
    """Unused nodes, initializers, functions and trailing optional outputs → nothing.

    Legal because ONNX operators have no side effects. The inputs and outputs of the graph stay. ``docs/passes.md``
    compares this pass with onnx_ir's RemoveUnusedNodesPass.
    """

    name = "eliminate_dead_code"

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Visits the nodes of the graph, its subgraphs and all functions in reverse order, consumers first."""
        whole: list[ir.Graph | ir.Function] = [*model.functions.values(), model.graph]
        modified = sum(map(_remove_dead_code, whole)) > 0
        if model.functions:
            modified |= common.RemoveUnusedFunctionsPass()(model).modified  # type: ignore[no-untyped-call]
        return ir.passes.PassResult(model, modified)


def _remove_dead_code(graph: ir.Graph | ir.Function) -> int:
    """Removes the dead nodes and initializers of a graph and its subgraphs, and returns their number."""
    dead: list[ir.Node] = []
    count = 0
    for node in reversed(graph):
        if not any(map(is_read, node.outputs)):
            dead.append(node)
            node.resize_inputs(0)  # so that nothing reads its producers
            for body in subgraphs(node):
                clear_inputs(body)
            continue
        required = _REQUIRED.get(node.op_type)
        if required is not None and not node.domain and len(node.outputs) > required:
            has_past = node.op_type == "Attention" and any(value is not None for value in node.inputs[4:6])
            _remove_trailing_outputs(node, _REQUIRED_OF_ATTENTION_WITH_PAST if has_past else required)
        for body in subgraphs(node):
            count += _remove_dead_code(body)
    graph.remove(dead)
    known: MutableMapping[str, ir.Value] = graph.initializers if isinstance(graph, ir.Graph) else {}
    unused = [name for name, value in known.items() if not (is_read(value) or value.is_graph_input())]
    for name in unused:
        del known[name]
    return count + len(dead) + len(unused)


def _remove_trailing_outputs(node: ir.Node, required: int) -> None:
    kept = len(node.outputs)
    while kept > required and not is_read(node.outputs[kept - 1]):
        kept -= 1
    if kept < len(node.outputs):
        node.resize_outputs(kept)
