"""Folding of the split and merge of heads into Attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import NamedTuple

import onnx_ir as ir
from onnx_ir import Value

from fx_onnx.onnx_model import metadata
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import (
    attribute,
    chain,
    constant_array,
    constant_integers,
    dims,
    permutation_of,
    producer_of,
    single_use,
    single_use_producer,
)
from fx_onnx.passes.rules import Result, rule

__all__ = ["HeadRows", "fold_head_reshapes", "head_rows"]

_SWAP_HEADS = [0, 2, 1, 3]  # (batch, length, heads, size) ↔ (batch, heads, length, size)


@rule("Attention(query, key, value, *rest)", since=23)
def fold_head_reshapes(
    f: NodeBuilder, node: ir.Node, query: Value, key: Value, value: Value, rest: Sequence[Value | None]
) -> Result:
    """merge(Attention(split(q), split(k), split(v))) → Attention(q, k, v) with q, k and v in its 3-D layout.

    split is Transpose(Reshape(x)), from (batch, length, heads * size) to (batch, heads, length, size); merge is its
    inverse. Legal because Attention, given the numbers of heads, splits and merges in the same way. The cache is 4-D in
    both layouts. The three may also be parts of one packed tensor; a RotaryEmbedding between split and Attention takes
    the 3-D layout too. Where another node than a Reshape, such as a norm of each head, comes before the Transpose, a
    Reshape takes the place of the Transpose. No other node may read the result before the merge.
    """
    merge, result = _merge_after(node), node.outputs[0]
    sizes = dims(result)
    if merge is None or sizes is None:
        return None
    queries, keys, values = map(head_rows, (query, key, value))
    if queries is None or keys is None or values is None:
        return "a query, key or value is not split into heads by Reshape and Transpose"
    batch, heads, length, size = sizes
    if not isinstance(heads, int) or not isinstance(size, int) or (queries.heads, keys.heads) != (heads, values.heads):
        return "the numbers of heads are not known or differ"
    merged = (batch, length, heads * size)
    merges_only = dims(merge.outputs[0]) == merged
    if not merges_only and 0 in (constant_integers(merge.inputs[1]) or [0])[2:]:
        return "the next Reshape copies a size (0 in its shape) that the 3-D layout does not have"
    rows = [operand.build(f.editor, node) for operand in (queries, keys, values)]
    swap = producer_of(merge.inputs[0], "Transpose")
    for absorbed in (swap, merge if merges_only else None):
        node.metadata_props.update(metadata.merged(absorbed.metadata_props if absorbed else {}, node.metadata_props))
    result.shape = ir.Shape(merged)
    if not (merges_only and f.editor.replace_with_value(merge, result)):
        f.editor.replace(merge, "Reshape", [result, merge.inputs[1]])
    attributes = {**node.attributes, "q_num_heads": heads, "kv_num_heads": keys.heads}
    return f.emit("Attention", [*rows, *rest], attributes, outputs=len(node.outputs))


def _merge_after(node: ir.Node) -> ir.Node | None:
    """Returns the Reshape of Reshape(Transpose(Attention)) that merges the heads, if nothing else reads the results."""
    swap = _single_consumer(node.outputs[0], "Transpose")
    merge = (
        _single_consumer(swap.outputs[0], "Reshape")
        if swap is not None and permutation_of(swap) == _SWAP_HEADS
        else None
    )
    return merge if merge is not None and swap is not None and merge.inputs[0] is swap.outputs[0] else None


def _single_consumer(value: Value, op_type: str) -> ir.Node | None:
    """Returns the one consumer of the value if it is this operator."""
    consumer = next(iter(value.uses())).node if single_use(value) else None
    return consumer if consumer is not None and consumer.op_type == op_type and not consumer.domain else None


class HeadRows(NamedTuple):
    """The 3-D form (batch, length, heads * size) of a value (batch, heads, length, size).

    ``build`` inserts the nodes that compute it, if any, and returns it.
    """

    heads: int
    build: Callable[[Editor, ir.Node], Value]


def head_rows(value: Value | None) -> HeadRows | None:
    """Returns the 3-D form from which the value (batch, heads, length, size) was split; None if it was not."""
    rotary = single_use_producer(value, "RotaryEmbedding")
    if rotary is not None:
        before = head_rows(rotary.inputs[0])
        return None if before is None else HeadRows(before.heads, partial(_rotary, rotary, before))
    norm, swap = single_use_producer(value, "RMSNormalization"), producer_of(value, "Transpose")
    if norm is not None:
        return _rows_of_norm(norm)
    if swap is not None:
        return _rows(swap.inputs[0]) if permutation_of(swap) == _SWAP_HEADS else None
    return _part(producer_of(value, "Gather"))


def _part(gather: ir.Node | None) -> HeadRows | None:
    """Returns the 3-D form of a part of one packed tensor of queries, keys and values."""
    path = chain(gather.inputs[0], "Transpose", "Reshape") if gather is not None else None
    if gather is None or path is None:
        return None
    swap, split = path
    source, whole, parts = split.inputs[0], dims(split.inputs[0]), dims(split.outputs[0])
    sizes = [size for size in (parts or ())[2:] if isinstance(size, int)]
    if source is None or whole is None or parts is None or len(parts) != 2 + len(sizes):
        return None
    if whole != (*parts[:2], prod(sizes)) or permutation_of(swap) != [2, 0, 3, 1, 4]:
        return None
    index = constant_array(gather.inputs[1])
    if index is None or index.shape or attribute(gather, "axis", 0) != 0:
        return None
    return HeadRows(sizes[1], partial(_piece, source, sizes[0], int(index) % sizes[0]))


def _rows(value: Value | None) -> HeadRows | None:
    """Returns the 3-D form of a value (batch, length, heads, size): that from which it was split, or a Reshape."""
    sizes, split = dims(value), producer_of(value, "Reshape")
    if value is None or sizes is None or len(sizes) != 4:
        return None
    heads, size = sizes[2:]
    if not isinstance(heads, int) or not isinstance(size, int):
        return None
    source = split.inputs[0] if split is not None else None
    if source is not None and dims(source) == (*sizes[:2], heads * size):
        return HeadRows(heads, partial(_itself, source))
    return HeadRows(heads, partial(_merge_heads, value, (*sizes[:2], heads * size)))


def _rows_of_norm(norm: ir.Node) -> HeadRows | None:
    """Returns the 3-D form of a norm of each head, which is computed before its heads are swapped with the length."""
    swap, sizes = producer_of(norm.inputs[0], "Transpose"), dims(norm.outputs[0])
    before = swap.inputs[0] if swap is not None and permutation_of(swap) == _SWAP_HEADS else None
    if before is None or sizes is None or attribute(norm, "axis", -1) not in (-1, 3):
        return None
    batch, heads, length, size = sizes
    if not isinstance(heads, int) or not isinstance(size, int) or len(dims(norm.inputs[1]) or ()) != 1:
        return None

    def build(editor: Editor, node: ir.Node) -> Value:
        f = NodeBuilder(norm, editor, norm.outputs[0].dtype)
        inputs, attributes = [before, *norm.inputs[1:]], {**norm.attributes, "axis": -1}
        normalized = f.emit("RMSNormalization", inputs, attributes)[0]
        return _merge_heads(normalized, (batch, length, heads * size), editor, node)

    return HeadRows(heads, build)


def _itself(source: Value, editor: Editor, node: ir.Node) -> Value:
    return source


def _merge_heads(value: Value, sizes: tuple[int | str, ...], editor: Editor, node: ir.Node) -> Value:
    """Merges the heads that come from another node than a Reshape, such as a norm of each head."""
    return NodeBuilder(node, editor, value.dtype).Reshape(value, [0, 0, sizes[2]])


def _piece(source: Value, count: int, index: int, editor: Editor, node: ir.Node) -> Value:
    """Splits a packed tensor into ``count`` equal pieces and returns one of them.

    Query, key and value insert one Split each; common-subexpression elimination merges the three.
    """
    attributes = {"axis": -1, "num_outputs": count}
    return NodeBuilder(node, editor, source.dtype).emit("Split", [source], attributes, outputs=count)[index]


def _rotary(rotary: ir.Node, before: HeadRows, editor: Editor, node: ir.Node) -> Value:
    """Inserts the RotaryEmbedding of the 3-D form."""
    inputs = [before.build(editor, rotary), *rotary.inputs[1:]]
    attributes = {**rotary.attributes, "num_heads": before.heads}
    return NodeBuilder(rotary, editor, rotary.outputs[0].dtype).emit("RotaryEmbedding", inputs, attributes)[0]
