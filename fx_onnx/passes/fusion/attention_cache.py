"""Folding of the cache of keys and values into Attention."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.fusion.repeated_heads import has_cache
from fx_onnx.passes.matchers import attribute, dims
from fx_onnx.passes.rules import Result, rule

__all__ = ["are_pasts", "fold_cache", "replace_joined"]


@rule("Attention(query, ~Concat(...), ~Concat(...), mask | None)", since=23)
def fold_cache(f: NodeBuilder, node: ir.Node, nodes: Sequence[ir.Node], query: Value, mask: Value | None) -> Result:
    """Attention(q, Concat(past_k, k), Concat(past_v, v), m) → Attention(q, k, v, m, past_k, past_v) with three results.

    The second and the third result are the Concats, which the graph returns as its new cache. Legal because Attention
    appends k to past_k and v to past_v along the length. It must not be causal: with a past, Attention counts the
    positions of the queries from the end of the past, and without one from 0.
    """
    if len(nodes) != 3 or has_cache(node):
        return None
    _, keys, values = nodes
    if attribute(node, "is_causal", 0) or "q_num_heads" in node.attributes:
        return "it is causal, or its inputs are 3-D"
    if query.dtype not in (DataType.FLOAT, DataType.FLOAT16):
        return "the dtype is none that ONNX Runtime's Attention has"
    if not are_pasts(keys, values):
        return "a Concat is not of a past and of new tokens along the length"
    if not all(_is_returned(each, node) for each in (keys, values)):
        return "the graph does not return the Concats, or other nodes read them"
    inputs = [query, keys.inputs[1], values.inputs[1], mask, keys.inputs[0], values.inputs[0]]
    result, *presents = f.emit("Attention", inputs, node.attributes, outputs=3)
    replace_joined((keys, values), presents, f)
    return result


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


def replace_joined(concats: Iterable[ir.Node], presents: Iterable[Value], f: NodeBuilder) -> None:
    """Replaces the results of the Concats by those of a new node. Their consumers are moved behind ``f.node``."""
    graph = f.node.graph
    for concat, present in zip(concats, presents, strict=True):
        consumers = [use.node for use in concat.outputs[0].uses() if use.node is not f.node]
        f.editor.replace_result(concat.outputs[0], present)
        for each in consumers:
            if graph is not None:
                graph.remove(each)
                graph.insert_after(f.node, each)
