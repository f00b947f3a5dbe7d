"""Dead-code elimination."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes import common

from fx_onnx.passes.editor import clear_inputs
from fx_onnx.passes.matchers import is_read
from fx_onnx.passes.rewriter import Pass
from fx_onnx.passes.traversal import all_graphs, subgraphs

__all__ = ["EliminateDeadCode"]

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
        count = sum(map(_remove_dead_nodes, whole))
        for graph in all_graphs(model.graph):
            unused = [
                name
                for name, value in graph.initializers.items()
                if not value.uses() and not value.is_graph_output() and not value.is_graph_input()
            ]
            for name in unused:
                del graph.initializers[name]
            count += len(unused)
        modified = bool(count)
        if model.functions:
            modified |= common.RemoveUnusedFunctionsPass()(model).modified  # type: ignore[no-untyped-call]
        return ir.passes.PassResult(model, modified)


def _remove_dead_nodes(graph: ir.Graph | ir.Function) -> int:
    """Removes the dead nodes of a graph and its subgraphs, and returns their number."""
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
            count += _remove_dead_nodes(body)
    graph.remove(dead)
    return count + len(dead)


def _remove_trailing_outputs(node: ir.Node, required: int) -> None:
    kept = len(node.outputs)
    while kept > required and not is_read(node.outputs[kept - 1]):
        kept -= 1
    if kept < len(node.outputs):
        node.resize_outputs(kept)
