"""Fusion of attention with a cache, with sinks or without, into ONNX Runtime's GroupQueryAttention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import onnx_ir as ir
import torch
from onnx_ir import DataType, Value

from fx_onnx.onnx_model.weights import computed
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.fusion.attention_fusion import are_pasts, replace_joined
from fx_onnx.passes.fusion.attention_layout import HeadRows, head_rows
from fx_onnx.passes.fusion.attention_masks import Linear, Read, index_formula
from fx_onnx.passes.matchers import attribute, dims, initializer_tensor, producer_of
from fx_onnx.passes.rules import Result, rule

__all__ = ["CausalMask", "fuse_group_query_attention", "fuse_sink_attention", "match_mask", "text_lengths"]

_LENGTHS = "fx_onnx.lengths"
_BATCH, _QUERY, _KEY = Linear.of(-4), Linear.of(-2), Linear.of(-1)


@rule("Attention(query, key, value, mask, keys, values)", since=23)
def fuse_group_query_attention(
    f: NodeBuilder, node: ir.Node, query: Value, key: Value, value: Value, mask: Value, keys: Value, values: Value
) -> Result:
    """Attention(q, k, v, mask, past_k, past_v) → com.microsoft.GroupQueryAttention(q, k, v, past_k, past_v, lengths).

    The mask must be causal, with a sliding window or without, and read an input of padding. Legal where the padding is
    behind the tokens, because the operator takes the number of tokens of each text. It writes the new keys and values
    into the buffer of the past, which may be longer than the past. With a past, either the batch or the number of new
    tokens must be 1.
    """
    if len(node.outputs) != 3 or f.editor.function is not None:
        return None
    if reason := _misfit(node):
        return reason
    causal = match_mask(mask, _length(keys))
    if causal is None:
        return "the mask is not known to be causal and to hide the padding of an input"
    attributes = {
        "num_heads": attribute(node, "q_num_heads"),
        "kv_num_heads": attribute(node, "kv_num_heads"),
        "scale": attribute(node, "scale"),
        "softcap": attribute(node, "softcap"),
        "local_window_size": causal.window,
    }
    inputs = [query, key, value, keys, values, *text_lengths(causal.padding, f)]
    return f.emit("GroupQueryAttention", inputs, attributes, outputs=3, domain="com.microsoft")


def _misfit(node: ir.Node) -> str:
    """Returns why the operator cannot compute this Attention; empty if it can."""
    query, key, value = map(dims, node.inputs[:3])
    heads, shared = attribute(node, "q_num_heads"), attribute(node, "kv_num_heads")
    if not heads or not shared or query is None or key is None or value is None:
        return "its inputs are not 3-D"
    if node.inputs[0] is None or node.inputs[0].dtype not in (DataType.FLOAT, DataType.FLOAT16):
        return "the dtype is neither float32 nor float16"
    if not isinstance(query[2], int) or not isinstance(key[2], int) or key[2] * heads != query[2] * shared:
        return "queries and keys have different sizes"
    if key != value or query[:2] != key[:2]:
        return "keys and values have different sizes, or another length than the queries"
    if query[2] // heads % 8:
        return "the size of a head is no multiple of 8"
    if attribute(node, "is_causal", 0) or attribute(node, "qk_matmul_output_mode", 0):
        return "it is causal, or returns the scores"
    if not all(past is not None and past.is_graph_input() for past in node.inputs[4:]):
        return "the past is no input of the graph"
    return ""


def _length(past: Value | None) -> int | str | None:
    sizes = dims(past)
    return sizes[2] if sizes is not None and len(sizes) == 4 else None


class CausalMask(NamedTuple):
    """A causal mask: the input that is not 0 for tokens, and the number of keys in a window, or None."""

    padding: Value
    window: int | None


def match_mask(mask: Value | None, past: int | str | None) -> CausalMask | None:
    """Proves that the mask is causal, and finds its window and the padding. ``past`` is the length of the past."""
    formula = index_formula(mask)
    if formula is None or past is None or not isinstance(formula.element, frozenset):
        return None
    ahead = (Linear.of(past) if isinstance(past, str) else Linear(past)).plus(_QUERY).plus(_KEY, -1)
    conditions = set(formula.element)
    if ahead not in conditions:
        return None
    conditions.remove(ahead)
    reads = [read for read in conditions if isinstance(read, Read) and read.index == (_BATCH, _KEY)]
    # A key of a window satisfies ahead ≤ window - 1, which is window - 1 - ahead ≥ 0.
    limits = [condition.plus(ahead) for condition in conditions if isinstance(condition, Linear)]
    if len(reads) != 1 or len(limits) > 1 or len(conditions) != len(reads) + len(limits):
        return None
    if any(limit.terms or limit.constant < 0 for limit in limits):
        return None
    return CausalMask(reads[0].value, limits[0].constant + 1 if limits else None)


def text_lengths(padding: Value, f: NodeBuilder) -> tuple[Value, Value]:
    """Returns the index of each text's last token, (batch,), and the number of all places, a scalar.

    They are inserted once, right behind the inputs, for all layers.
    """
    made: tuple[Value, Value] | None = padding.meta.get(_LENGTHS)
    if made is None or any(value.graph is None for value in made):  # not made yet, or removed with their last consumer
        f = NodeBuilder(f.node, f.editor, DataType.INT32, after=padding)
        total = f.Cast(f.Squeeze(f.Shape(padding, start=1, end=2), [0]), to=DataType.INT32)
        tokens = f.Cast(f.Cast(padding, to=DataType.BOOL), to=DataType.INT32)
        last = f.Sub(f.ReduceSum(tokens, [1], keepdims=0), 1)
        made = padding.meta[_LENGTHS] = (last, total)
    return made


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
    joins = [concat for concat in nodes if concat.op_type == "Concat"]
    if f.editor.function is not None or len(joins) != 3 or not {cut[0], last, along} <= {-1, 3}:
        return None
    joined, keys, values = joins
    read, scores = (product for product in nodes if product.op_type == "MatMul")
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
    split = [head_rows(part) for part in parts]
    causal = match_mask(mask, _length(keys.inputs[0]))
    if causal is None or split[0] is None or split[1] is None or split[2] is None:
        return "the heads are not split from rows, or the mask is not known to be causal"
    if reason := _misfit_of_sinks(query, sinks, keys, values, split[0], split[1]):
        return reason
    attributes = {
        "num_heads": split[0].heads,
        "kv_num_heads": split[1].heads,
        "scale": scale,
        "local_window_size": causal.window,
    }
    inputs = [*(head.build(f.editor, node) for head in split if head is not None), keys.inputs[0], values.inputs[0]]
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


def _misfit_of_sinks(
    queries: Value, sinks: Value, keys: ir.Node, values: ir.Node, query: HeadRows, key: HeadRows
) -> str:
    """Returns why the operator cannot compute this attention; empty if it can."""
    sizes = dims(queries)
    if queries.dtype not in (DataType.FLOAT, DataType.FLOAT16) or sinks.dtype != queries.dtype:
        return "the dtype is neither float32 nor float16"
    if sizes is None or not isinstance(sizes[3], int) or sizes[3] % 8 or query.heads % key.heads:
        return "the size of a head is no multiple of 8"
    if not are_pasts(keys, values):
        return "a Concat is not of a past and of new tokens along the length"
    if [dims(concat.inputs[1]) for concat in (keys, values)] != [(sizes[0], key.heads, *sizes[2:])] * 2:
        return "keys and values have different sizes, or another length than the queries"
    joined = [concat.outputs[0] for concat in (keys, values)]
    if not all(value.is_graph_output() and len(value.uses()) == 1 for value in joined):
        return "the graph does not return the Concats, or other nodes read them"
    if not all(concat.inputs[0] is not None and concat.inputs[0].is_graph_input() for concat in (keys, values)):
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
