"""Removal of repeated key heads: grouped-query attention reads each key and value once."""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import chain, dims, permutation_of, producer_of, single_use
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FoldRepeatedHeads", "FoldRepeatsIntoRows", "has_cache", "match_repeat"]


class FoldRepeatedHeads(Rewrite):
    """Attention(q, repeat(k), repeat(v)) → Attention(q, k, v): grouped-query attention.

    repeat(x) is Reshape(Expand(Unsqueeze(x))) and repeats each head of x (batch, heads, length, size) n times in
    succession. Legal because Attention shares one key head among n successive query heads.
    """

    name = "fold_repeated_heads"
    op_types = ("Attention",)
    producers = frozenset({"Reshape"})
    since = 23

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Removes the repetition before one Attention."""
        query, repeated_key, repeated_value = node.inputs[:3]
        keys, values = match_repeat(repeated_key), match_repeat(repeated_value)
        if keys is None or values is None:
            return False
        key, value = keys.source, values.source
        if has_cache(node):
            return self.declines(node, "it reads or returns a cache of keys and values")
        key_dims, value_dims = dims(key), dims(value)
        if len(dims(query) or ()) != 4 or key_dims is None or value_dims is None or key_dims[1] != value_dims[1]:
            return self.declines(
                node,
                "the queries are not 4-D, or the keys, of shape %s, and values, %s, differ in heads",
                key_dims,
                value_dims,
            )
        editor.replace(node, "Attention", [query, key, value, *node.inputs[3:]])
        return True


class FoldRepeatsIntoRows(Rewrite):
    """MatMul(a, repeat(x)) → Reshape(MatMul(Reshape(a), x)), where repeat(x) may be transposed before the product.

    repeat(x) is Reshape(Expand(Unsqueeze(x))) and repeats each head of x (batch, heads, length, size) n times in
    succession. Legal because the n heads of ``a`` that meet one head of x are n times as many rows of one product.
    Attention computes this itself, so from opset 23 on the products of an attention that it expresses stay.
    """

    name = "fold_repeats_into_rows"
    op_types = ("MatMul",)
    producers = frozenset({"Reshape", "Transpose"})

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Removes the repetition before one product."""
        a, b = node.inputs
        swap = producer_of(b, "Transpose")
        order = permutation_of(swap)
        repeat = match_repeat(swap.inputs[0] if swap is not None else b)
        if a is None or repeat is None or (swap is not None and order != [0, 1, 3, 2]):
            return False
        if editor.opset >= FoldRepeatedHeads.since and _may_become_attention(node):
            return self.declines(node, "Attention shares the heads itself")
        sizes = dims(a)
        if sizes is None or len(sizes) != 4 or sizes[1] != repeat.heads * repeat.copies:
            return self.declines(node, "the first operand, of shape %s, does not have the repeated heads", sizes)
        f = NodeBuilder(node, editor, a.dtype)
        other = repeat.source if swap is None else f.Transpose(repeat.source, perm=order)
        length = sizes[2]
        rows = length * repeat.copies if isinstance(length, int) else -1
        product = f.MatMul(f.Reshape(a, [0, repeat.heads, rows, 0]), other)
        shape = f.constant([0, sizes[1], length if isinstance(length, int) else -1, 0])
        editor.replace(node, "Reshape", [product, shape], {}, [*repeat.nodes, *([swap] if swap is not None else [])])
        return True


def _may_become_attention(product: ir.Node) -> bool:
    """Returns whether the product is the first or the second one of Softmax(scale * q @ kᵀ + mask) @ v."""
    if producer_of(product.inputs[0], "Softmax") is not None:
        return True
    value = product.outputs[0]
    while single_use(value):
        consumer = next(iter(value.uses())).node
        if consumer.op_type not in ("Mul", "Div", "Add", "Tanh"):
            return consumer.op_type == "Softmax"
        value = consumer.outputs[0]
    return False


def has_cache(node: ir.Node) -> bool:
    """Returns whether an Attention has past keys and values as inputs, or more outputs than the result."""
    return len(node.outputs) > 1 or any(value is not None for value in node.inputs[4:])


class _Repeat(NamedTuple):
    """The value ``source`` (batch, heads, length, size), each head of which the nodes repeat ``copies`` times."""

    source: ir.Value
    heads: int
    copies: int
    nodes: tuple[ir.Node, ...]


def match_repeat(value: ir.Value | None) -> _Repeat | None:
    """Matches Reshape(Expand(Unsqueeze(x))) that repeats each head of x in succession."""
    path = chain(value, "Reshape", "Expand", ("Unsqueeze", "Reshape"))
    if path is None:
        return None
    _, expand, unsqueeze = path
    source = unsqueeze.inputs[0]
    before, single, repeated, after = map(dims, (source, *unsqueeze.outputs, *expand.outputs, value))
    if source is None or before is None or repeated is None or len(before) != 4 or len(repeated) != 5:
        return None
    batch, heads, *rest = before
    copies = repeated[2]
    if not isinstance(heads, int) or not isinstance(copies, int) or single != (batch, heads, 1, *rest):
        return None
    repeats_heads = repeated == (batch, heads, copies, *rest) and after == (batch, heads * copies, *rest)
    return _Repeat(source, heads, copies, path) if repeats_heads else None
