"""Fusion of Attention with a cache into ONNX Runtime's GroupQueryAttention."""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.fusion.index_formulas import Linear, Read, index_formula
from fx_onnx.passes.matchers import attribute, dims
from fx_onnx.passes.rules import Result, rule

__all__ = ["CausalMask", "fuse_group_query_attention", "match_mask", "text_lengths"]

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
    found = match_mask(mask, _length(keys))
    if found is None:
        return "the mask is not known to be causal and to hide the padding of an input"
    attributes = {
        "num_heads": attribute(node, "q_num_heads"),
        "kv_num_heads": attribute(node, "kv_num_heads"),
        "scale": attribute(node, "scale"),
        "softcap": attribute(node, "softcap"),
        "local_window_size": found.window,
    }
    inputs = [query, key, value, keys, values, *text_lengths(found.padding, f)]
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
    reads = [each for each in conditions if isinstance(each, Read) and each.index == (_BATCH, _KEY)]
    # A key of a window satisfies ahead ≤ window - 1, which is window - 1 - ahead ≥ 0.
    limits = [each.plus(ahead) for each in conditions if isinstance(each, Linear)]
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
