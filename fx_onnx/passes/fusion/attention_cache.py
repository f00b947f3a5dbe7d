"""Folding of the cache of keys and values into Attention."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.fusion.repeated_heads import has_cache
from fx_onnx.passes.matchers import attribute, dims, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FoldCache", "are_pasts", "replace_joined"]


class FoldCache(Rewrite):
    """Attention(q, Concat(past_k, k), Concat(past_v, v), m) → Attention(q, k, v, m, past_k, past_v) with three results.

    The second and the third result are the Concats, which the graph returns as its new cache. Legal because Attention
    appends k to past_k and v to past_v along the length. It must not be causal: with a past, Attention counts the
    positions of the queries from the end of the past, and without one from 0.
    """

    name = "fold_cache"
    op_types = ("Attention",)
    producers = frozenset({"Concat"})
    since = 23

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Folds the two Concats before one Attention."""
        joined = [producer_of(value, "Concat") for value in node.inputs[1:3]]
        keys, values = joined
        if keys is None or values is None or keys is values or has_cache(node):
            return False
        if attribute(node, "is_causal", 0) or "q_num_heads" in node.attributes:
            return self.declines(node, "it is causal, or its inputs are 3-D")
        if node.inputs[0] is None or node.inputs[0].dtype not in (DataType.FLOAT, DataType.FLOAT16):
            return self.declines(node, "the dtype is none that ONNX Runtime's Attention has")
        if not are_pasts(keys, values):
            return self.declines(node, "a Concat is not of a past and of new tokens along the length")
        if not all(_is_returned(each, node) for each in (keys, values)):
            return self.declines(node, "the graph does not return the Concats, or other nodes read them")
        mask = node.inputs[3] if len(node.inputs) > 3 else None
        inputs = [node.inputs[0], keys.inputs[1], values.inputs[1], mask, keys.inputs[0], values.inputs[0]]
        node.resize_outputs(3)
        editor.replace(node, "Attention", inputs, absorbed=[keys, values])
        for each, present in zip((keys, values), node.outputs[1:], strict=True):
            replace_joined(each, present, node, editor)
        return True


def are_pasts(keys: ir.Node, values: ir.Node) -> bool:
    """Returns whether both Concats join two 4-D values along the length, with equal lengths."""
    lengths = []
    for each in (keys, values):
        sizes = [dims(value) for value in each.inputs]
        if len(sizes) != 2 or any(size is None or len(size) != 4 for size in sizes):
            return False
        if attribute(each, "axis") not in (2, -2):
            return False
        lengths.append([size[2] for size in sizes if size is not None])
    return lengths[0] == lengths[1]


def _is_returned(concat: ir.Node, node: ir.Node) -> bool:
    """Returns whether the graph returns the result, or a part of it, and no node before the Attention reads it."""
    value = concat.outputs[0]
    others = [use.node for use in value.uses() if use.node is not node]
    if concat.graph is not node.graph or len(value.uses()) != len(others) + 1:
        return False
    ends = [each.graph is node.graph and not any(output.uses() for output in each.outputs) for each in others]
    return all(ends) and (value.is_graph_output() or bool(others))


def replace_joined(concat: ir.Node, present: ir.Value, node: ir.Node, editor: Editor) -> None:
    """Replaces the result of the Concat by one of Attention. Its other consumers are moved behind the Attention."""
    result, graph = concat.outputs[0], node.graph
    consumers = [use.node for use in result.uses() if use.node is not node]
    if not result.is_graph_output():
        present.name, result.name = result.name, None
    present.type, present.shape = result.type, result.shape
    editor.replace_with_value(concat, present)
    for each in consumers:
        if graph is not None:
            graph.remove(each)
            graph.insert_after(node, each)
