"""Fusion of attention with sinks into ONNX Runtime's GroupQueryAttention."""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir
import torch
from onnx_ir import DataType

from fx_onnx.core.weights import computed
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.fusion.attention_cache import are_pasts, replace_joined
from fx_onnx.passes.fusion.attention_layout import HeadRows, head_rows
from fx_onnx.passes.fusion.group_query_attention import match_mask, text_lengths
from fx_onnx.passes.matchers import (
    attribute,
    commuted_inputs,
    constant_integers,
    constant_number,
    dims,
    initializer_tensor,
    permutation_of,
    producer_of,
    single_use_producer,
)
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FuseSinkAttention"]

_SWAP_HEADS, _SWAP_LAST = [0, 2, 1, 3], [0, 1, 3, 2]


class FuseSinkAttention(Rewrite):
    """merge(Softmax(Concat(scale * q @ kᵀ + mask, sinks)) without its last column @ v) → GroupQueryAttention.

    k and v are Concats of a past, which is an input, and of new keys and values. merge is Reshape(Transpose(x)), to
    (batch, length, heads * size). Legal where the mask is causal and the padding is behind the tokens, under the other
    conditions of fuse_group_query_attention. A sink is a weight of each head, which takes its part of the softmax and
    has no value. gpt-oss has sinks; ONNX's Attention does not.
    """

    name = "fuse_sink_attention"
    op_types = ("Reshape",)
    since = 23

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Fuses at the Reshape that merges the heads."""
        found = _match(node) if editor.function is None else None
        if found is None:
            return False
        query, key, value = map(head_rows, (found.query, found.keys.inputs[1], found.values.inputs[1]))
        past = dims(found.keys.inputs[0])
        mask = match_mask(found.mask, past[2] if past else None)
        if query is None or key is None or value is None or mask is None:
            return self.declines(node, "the heads are not split from rows, or the mask is not known to be causal")
        if reason := _misfit(found, query, key):
            return self.declines(node, reason)
        rows = [each.build(editor, node) for each in (query, key, value)]
        pasts = [each.inputs[0] for each in (found.keys, found.values)]
        lengths = text_lengths(mask.padding, editor, node)
        attributes = {
            "num_heads": query.heads,
            "kv_num_heads": key.heads,
            "scale": found.scale,
            "local_window_size": mask.window,
        }
        sinks = _vector(found.sinks, editor, node)
        node.resize_outputs(3)
        editor.replace(
            node,
            "GroupQueryAttention",
            [*rows, *pasts, *lengths, None, None, None, None, sinks],
            attributes,
            absorbed=[*found.absorbed, found.keys, found.values],
            domain="com.microsoft",
        )
        for each, present in zip((found.keys, found.values), node.outputs[1:], strict=True):
            replace_joined(each, present, node, editor)
        return True


class _SinkAttention(NamedTuple):
    """The parts of one attention with sinks, and the nodes between them."""

    query: ir.Value
    keys: ir.Node
    values: ir.Node
    mask: ir.Value
    scale: float
    sinks: ir.Value
    absorbed: tuple[ir.Node, ...]


def _match(merge: ir.Node) -> _SinkAttention | None:
    """Matches the attention before a Reshape that merges its heads."""
    swap = single_use_producer(merge.inputs[0], "Transpose")
    sizes, merged = (dims(swap.inputs[0]) if swap is not None else None), dims(merge.outputs[0])
    if swap is None or sizes is None or len(sizes) != 4 or permutation_of(swap) != _SWAP_HEADS:
        return None
    batch, heads, length, size = sizes
    if not isinstance(heads, int) or not isinstance(size, int) or merged != (batch, length, heads * size):
        return None
    read = _match_product(swap.inputs[0])
    softmax = _without_last_column(read.first) if read is not None else None
    joined = single_use_producer(softmax.inputs[0], "Concat") if softmax is not None else None
    if read is None or softmax is None or joined is None or len(joined.inputs) != 2:
        return None
    if attribute(softmax, "axis", -1) not in (-1, 3) or attribute(joined, "axis") not in (-1, 3):
        return None
    scores, sinks = _match_scores(joined.inputs[0]), _match_sinks(joined.inputs[1], heads)
    values = producer_of(read.second, "Concat")
    query = dims(scores.query) if scores is not None else None
    if scores is None or sinks is None or values is None or query is None or query[:3] != (batch, heads, length):
        return None
    cached = [dims(each.outputs[0]) for each in (scores.keys, values)]
    if [scores.heads, read.heads] != [sizes[1] if sizes else None for sizes in cached]:
        return None
    absorbed = (*scores.nodes, joined, softmax, *read.nodes, swap)
    return _SinkAttention(scores.query, scores.keys, values, scores.mask, scores.scale, sinks, absorbed)


class _Scores(NamedTuple):
    """The parts of scale * q @ kᵀ + mask, the heads of k, and the nodes."""

    query: ir.Value
    keys: ir.Node
    mask: ir.Value
    scale: float
    heads: int
    nodes: tuple[ir.Node, ...]


def _match_scores(value: ir.Value | None) -> _Scores | None:
    """Matches scale * q @ kᵀ + mask, where k is a Concat."""
    added = single_use_producer(value, "Add")
    for scores, mask in commuted_inputs(added) if added is not None else ():
        scaled = single_use_producer(scores, "Mul")
        product = _match_product(scaled.inputs[0] if scaled is not None else scores)
        scale = 1.0 if scaled is None else constant_number(scaled.inputs[1])
        turned = single_use_producer(product.second, "Transpose") if product is not None else None
        keys = producer_of(turned.inputs[0], "Concat") if permutation_of(turned) == _SWAP_LAST and turned else None
        if added is None or product is None or product.first is None or keys is None or mask is None or scale is None:
            continue
        nodes = (*product.nodes, *([scaled] if scaled is not None else []), added)
        return _Scores(product.first, keys, mask, scale, product.heads, nodes)
    return None


class _Product(NamedTuple):
    """The operands of a product, the heads of the second one, and the nodes."""

    first: ir.Value | None
    second: ir.Value | None
    heads: int
    nodes: tuple[ir.Node, ...]


def _match_product(value: ir.Value | None) -> _Product | None:
    """Matches a @ b, or Reshape(Reshape(a) @ b) where the heads of ``a`` that share a head of b are more rows."""
    product, after = single_use_producer(value, "MatMul"), dims(value)
    if after is None or len(after) != 4 or not isinstance(after[1], int):
        return None
    if product is not None:
        return _Product(product.inputs[0], product.inputs[1], after[1], (product,))
    outer = single_use_producer(value, "Reshape")
    product = single_use_producer(outer.inputs[0], "MatMul") if outer is not None else None
    inner = producer_of(product.inputs[0], "Reshape") if product is not None else None
    if outer is None or product is None or inner is None:
        return None
    before, shape = dims(inner.inputs[0]), constant_integers(inner.inputs[1])
    if before is None or shape is None or len(before) != 4 or len(shape) != 4 or attribute(inner, "allowzero", 0):
        return None
    # The inner Reshape keeps batch and size, and the outer one restores heads and rows.
    if shape[0] != 0 or shape[1] < 1 or shape[3] != 0 or after[:3] != before[:3]:
        return None
    return _Product(inner.inputs[0], product.inputs[1], shape[1], (inner, product, outer))


def _without_last_column(value: ir.Value | None) -> ir.Node | None:
    """Returns the Softmax of Slice(Softmax(x)) that leaves out the last column."""
    cut = single_use_producer(value, "Slice")
    if cut is None:
        return None
    start, end, axes, *steps = [constant_integers(each) for each in cut.inputs[1:]]
    if (start, end, steps) not in (([0], [-1], []), ([0], [-1], [[1]])) or axes not in ([-1], [3]):
        return None
    return single_use_producer(cut.inputs[0], "Softmax")


def _match_sinks(value: ir.Value | None, heads: int) -> ir.Value | None:
    """Returns the sinks (1, heads, 1, 1) that are expanded to batch and length."""
    expand = producer_of(value, "Expand")
    source = expand.inputs[0] if expand is not None else value
    sizes = dims(value)
    fits = sizes is not None and len(sizes) == 4 and sizes[3] == 1
    return source if fits and dims(source) == (1, heads, 1, 1) else None


def _misfit(found: _SinkAttention, query: HeadRows, key: HeadRows) -> str:
    """Returns why the operator cannot compute this attention; empty if it can."""
    sizes = dims(found.query)
    if found.query.dtype not in (DataType.FLOAT, DataType.FLOAT16) or found.sinks.dtype != found.query.dtype:
        return "the dtype is neither float32 nor float16"
    if sizes is None or not isinstance(sizes[3], int) or sizes[3] % 8 or query.heads % key.heads:
        return "the size of a head is no multiple of 8"
    if not are_pasts(found.keys, found.values) or found.keys is found.values:
        return "a Concat is not of a past and of new tokens along the length"
    news = [dims(each.inputs[1]) for each in (found.keys, found.values)]
    if news != [(sizes[0], key.heads, *sizes[2:])] * 2:
        return "keys and values have different sizes, or another length than the queries"
    joined = [each.outputs[0] for each in (found.keys, found.values)]
    if not all(value.is_graph_output() and len(value.uses()) == 1 for value in joined):
        return "the graph does not return the Concats, or other nodes read them"
    if not all(each.inputs[0] is not None and each.inputs[0].is_graph_input() for each in (found.keys, found.values)):
        return "the past is no input of the graph"
    return ""


def _vector(sinks: ir.Value, editor: Editor, node: ir.Node) -> ir.Value:
    """Returns the sinks as a vector."""
    data, sizes = initializer_tensor(sinks), dims(sinks)
    if data is None or sizes is None:
        return NodeBuilder(node, editor, sinks.dtype).Reshape(sinks, [-1])
    heads = [size for size in sizes if isinstance(size, int)][1]
    return editor.initializer(computed(torch.flatten, data, dtype=data.dtype, shape=(heads,)), f"{sinks.name}_vector")
