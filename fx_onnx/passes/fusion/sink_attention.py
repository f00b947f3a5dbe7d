"""Fusion of attention with sinks into ONNX Runtime's GroupQueryAttention."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch
from onnx_ir import DataType, Value

from fx_onnx.core.weights import computed
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.fusion.attention_cache import are_pasts, replace_joined
from fx_onnx.passes.fusion.attention_layout import HeadRows, head_rows
from fx_onnx.passes.fusion.group_query_attention import match_mask, text_lengths
from fx_onnx.passes.matchers import dims, initializer_tensor, producer_of
from fx_onnx.passes.rules import Result, rule

__all__ = ["fuse_sink_attention"]

_GROUPED = "~Reshape(query, integers.queries, allowzero=0)"
_TURNED = "Transpose(~Concat(...), perm=[0, 1, 3, 2])"
_SCORES = f"number.scale * (MatMul(query, {_TURNED}) | Reshape(MatMul({_GROUPED}, {_TURNED}), _)) + mask"
_SOFTMAX = f"Softmax(Concat({_SCORES}, ~Expand(sinks, _) | sinks, axis=last), axis=along)"
_CUT = f"Slice({_SOFTMAX}, 0, -1, integers.cut, 1 | None)"
_ROWS = f"Reshape({_CUT}, integers.rows, allowzero=0)"
_READ = f"(MatMul({_CUT}, ~Concat(...)) | Reshape(MatMul({_ROWS}, ~Concat(...)), _))"


@rule(f"Reshape(Transpose({_READ}, perm=[0, 2, 1, 3]), _)", since=23)
def fuse_sink_attention(
    f: NodeBuilder,
    node: ir.Node,
    nodes: Sequence[ir.Node],
    query: Value,
    mask: Value,
    sinks: Value,
    scale: float,
    queries: list[int] | None,
    rows: list[int] | None,
    cut: list[int],
    last: int,
    along: int,
) -> Result:
    """merge(Softmax(Concat(scale * q @ kᵀ + mask, sinks)) without its last column @ v) → GroupQueryAttention.

    k and v are Concats of a past, which is an input, and of new keys and values. merge is Reshape(Transpose(x)), to
    (batch, length, heads * size). Legal where the mask is causal and the padding is behind the tokens, under the other
    conditions of fuse_group_query_attention. A sink is a weight of each head, which takes its part of the softmax and
    has no value. gpt-oss has sinks; ONNX's Attention does not.
    """
    joins = [each for each in nodes if each.op_type == "Concat"]
    if f.editor.function is not None or len(joins) != 3 or not {cut[0], last, along} <= {-1, 3}:
        return None
    joined, keys, values = joins
    read, scores = (each for each in nodes if each.op_type == "MatMul")
    sizes, merged, sizes_of_query, sizes_of_sinks = map(
        dims, (nodes[1].inputs[0], node.outputs[0], query, joined.inputs[1])
    )
    if sizes is None or len(sizes) != 4 or sizes_of_query is None or sizes_of_query[:3] != sizes[:3]:
        return None
    batch, heads, length, size = sizes
    if not isinstance(heads, int) or not isinstance(size, int) or merged != (batch, length, heads * size):
        return None
    if dims(sinks) != (1, heads, 1, 1) or sizes_of_sinks is None or sizes_of_sinks[3:] != (1,):
        return None
    if not _reads_heads(scores, queries, keys) or not _reads_heads(read, rows, values):
        return None
    parts = query, keys.inputs[1], values.inputs[1]
    found, past = [head_rows(each) for each in parts], dims(keys.inputs[0])
    causal = match_mask(mask, past[2] if past else None)
    if causal is None or found[0] is None or found[1] is None or found[2] is None:
        return "the heads are not split from rows, or the mask is not known to be causal"
    if reason := _misfit(query, sinks, keys, values, found[0], found[1]):
        return reason
    attributes = {
        "num_heads": found[0].heads,
        "kv_num_heads": found[1].heads,
        "scale": scale,
        "local_window_size": causal.window,
    }
    inputs = [*(each.build(f.editor, node) for each in found if each is not None), keys.inputs[0], values.inputs[0]]
    inputs += [*text_lengths(causal.padding, f), None, None, None, None, _vector(sinks, f)]
    result, *presents = f.emit("GroupQueryAttention", inputs, attributes, outputs=3, domain="com.microsoft")
    replace_joined((keys, values), presents, f)
    return result


def _reads_heads(product: ir.Node, shape: list[int] | None, other: ir.Node) -> bool:
    """Returns whether a @ b, or Reshape(Reshape(a, shape) @ b), reads the heads of ``other``, which is b.

    The inner Reshape makes more rows of the heads of ``a`` that share a head of b; it keeps batch and size. The outer
    one restores heads and rows.
    """
    heads, sizes = (dims(other.outputs[0]) or (None, None))[1], dims(product.outputs[0])
    if shape is None:
        return sizes is not None and len(sizes) == 4 and isinstance(heads, int) and sizes[1] == heads
    inner = producer_of(product.inputs[0], "Reshape")
    before = None if inner is None else dims(inner.inputs[0])
    after = dims(next(iter(product.outputs[0].uses())).node.outputs[0])
    if before is None or after is None or not len(shape) == len(before) == len(after) == 4:
        return False
    return shape[0] == shape[3] == 0 and shape[1] == heads and after[:3] == before[:3]


def _misfit(found: Value, sinks: Value, keys: ir.Node, values: ir.Node, query: HeadRows, key: HeadRows) -> str:
    """Returns why the operator cannot compute this attention; empty if it can."""
    sizes = dims(found)
    if found.dtype not in (DataType.FLOAT, DataType.FLOAT16) or sinks.dtype != found.dtype:
        return "the dtype is neither float32 nor float16"
    if sizes is None or not isinstance(sizes[3], int) or sizes[3] % 8 or query.heads % key.heads:
        return "the size of a head is no multiple of 8"
    if not are_pasts(keys, values):
        return "a Concat is not of a past and of new tokens along the length"
    if [dims(each.inputs[1]) for each in (keys, values)] != [(sizes[0], key.heads, *sizes[2:])] * 2:
        return "keys and values have different sizes, or another length than the queries"
    joined = [each.outputs[0] for each in (keys, values)]
    if not all(value.is_graph_output() and len(value.uses()) == 1 for value in joined):
        return "the graph does not return the Concats, or other nodes read them"
    if not all(each.inputs[0] is not None and each.inputs[0].is_graph_input() for each in (keys, values)):
        return "the past is no input of the graph"
    return ""


def _vector(sinks: Value, f: NodeBuilder) -> Value:
    """Returns the sinks as a vector."""
    data, sizes = initializer_tensor(sinks), dims(sinks)
    if data is None or sizes is None:
        return f.Reshape(sinks, [-1])
    heads = [size for size in sizes if isinstance(size, int)][1]
    vector = computed(torch.flatten, data, dtype=data.dtype, shape=(heads,))
    return f.editor.initializer(vector, f"{sinks.name}_vector")
