"""The nodes that onnxscript's fusions for ONNX Runtime look for, where fx_onnx writes others.

``onnxscript.rewriter.ort_fusions.optimize_for_ort``, which ``ort_fusions`` of transformers' exporter runs, knows the
nodes that torch.onnx writes. A model that nobody fuses is faster with those of fx_onnx: ONNX Runtime itself fuses a
norm that divides, and products of grouped heads need no copies of keys and values. So only a model that is about to be
fused gets the nodes of torch.onnx.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir import Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import dims, permutation_of, producer_of
from fx_onnx.passes.rewriter import apply
from fx_onnx.passes.rules import Result, rule

__all__ = ["write_nodes_for_fusions"]


def write_nodes_for_fusions(model: ir.Model) -> None:
    """Replaces nodes in the graph of a model, in place, by those that ``optimize_for_ort`` fuses. The results stay."""
    apply(model, (multiply_by_reciprocal_norm, repeat_grouped_heads, transpose_cached_keys))


@rule("~x / Sqrt(ReduceMean(Pow(~x, 2.0), integers.axes, keepdims=1) + epsilon)")
def multiply_by_reciprocal_norm(f: NodeBuilder, x: Value, axes: list[int], epsilon: Value) -> Result:
    """x / Sqrt(ReduceMean(x²) + ε) → x * Reciprocal(Sqrt(ReduceMean(x²) + ε)), with the axis -1.

    Legal because the quotient is this product but for rounding.
    """
    if axes not in ([-1], [len(dims(x) or ()) - 1]):
        return f"the norm is over the axes {axes}"
    mean = f.ReduceMean(f.Pow(x, 2.0), [-1], keepdims=1, noop_with_empty_axes=0)
    return f.Mul(x, f.Reciprocal(f.Sqrt(f.Add(mean, epsilon))))


@rule("Reshape(MatMul(Reshape(rows, _), ~other), _)")
def repeat_grouped_heads(f: NodeBuilder, nodes: Sequence[ir.Node], rows: Value, other: Value) -> Result:
    """Reshape(MatMul(Reshape(a), x)) → MatMul(a, repeat(x)), where the heads of ``a`` that share one of x are its rows.

    Legal because it is the inverse of ``fold_repeats_into_rows``: repeat(x) repeats each head of x in succession.
    """
    swap = producer_of(other, "Transpose")
    order = permutation_of(swap)
    source = other if swap is None or order != [0, 1, 3, 2] or swap.inputs[0] is None else swap.inputs[0]
    sizes, shared, result = dims(rows), dims(source), dims(nodes[0].outputs[0])
    if sizes is None or shared is None or result is None or not len(sizes) == len(shared) == len(result) == 4:
        return None
    heads, groups, size = sizes[1], shared[1], shared[3]
    if not isinstance(heads, int) or not isinstance(groups, int) or not isinstance(size, int) or not groups:
        return "the heads are not constant"
    folded = nodes[-1].outputs[0].shape
    if heads == groups or folded is None or list(folded[:2]) != [sizes[0], groups] or result[:3] != sizes[:3]:
        return f"the rows are not {heads} heads in {groups} groups"
    copies = heads // groups
    repeated = f.Expand(f.Unsqueeze(source, [2]), [1, 1, copies, 1, 1], sizes=(*shared[:2], copies, *shared[2:]))
    whole = f.Reshape(repeated, [0, heads, -1, size], sizes=(shared[0], heads, *shared[2:]))
    return f.MatMul(rows, whole if source is other else f.Transpose(whole, perm=order))


@rule("Transpose(~states, perm=[0, 2, 3, 1])")
def transpose_cached_keys(f: NodeBuilder, node: ir.Node, states: Value) -> Result:
    """Transpose(x, [0, 2, 3, 1]) → Transpose(Transpose(x, [0, 2, 1, 3]), [0, 1, 3, 2]), where the inner node exists.

    Legal because both are one order of the axes. The inner node gives the keys that the graph returns as its cache.
    """
    producer, graph = states.producer(), node.graph
    if producer is None or graph is None or producer.graph is not graph:
        return None
    for reader in [use.node for use in states.uses()]:
        if permutation_of(reader) == [0, 2, 1, 3] and reader.outputs[0].is_graph_output():
            graph.remove(reader)  # it may stand behind the node that reads it now
            graph.insert_after(producer, reader)
            return f.Transpose(reader.outputs[0], perm=[0, 1, 3, 2])
    return None
