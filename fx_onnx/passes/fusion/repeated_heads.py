"""Removal of repeated key heads: grouped-query attention reads each key and value once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import onnx_ir as ir
from onnx_ir import Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import chain, dims, permutation_of, producer_of, single_use
from fx_onnx.passes.rules import Result, rule

__all__ = ["fold_repeated_heads", "fold_repeats_into_rows", "has_cache", "match_repeat"]


@rule("Attention(query, keys, values, *rest)", since=23)
def fold_repeated_heads(
    f: NodeBuilder, node: ir.Node, query: Value, keys: Value, values: Value, rest: Sequence[Value | None]
) -> Result:
    """Attention(q, repeat(k), repeat(v)) → Attention(q, k, v): grouped-query attention.

    repeat(x) is Reshape(Expand(Unsqueeze(x))) and repeats each head of x (batch, heads, length, size) n times in
    succession. Legal because Attention shares one key head among n successive query heads.
    """
    key, value = match_repeat(keys), match_repeat(values)
    if key is None or value is None:
        return None
    if has_cache(node):
        return "it reads or returns a cache of keys and values"
    if len(dims(query) or ()) != 4 or key.heads != value.heads:
        return f"the queries are not 4-D, or there are {key.heads} heads of keys and {value.heads} of values"
    return f.Attention(query, key.source, value.source, *rest, **node.attributes)


_REPEAT = "Reshape(Expand((Unsqueeze | Reshape)(_, _), _), _)"


@rule(f"MatMul(a, ~(Transpose({_REPEAT}) | {_REPEAT}))")
def fold_repeats_into_rows(f: NodeBuilder, node: ir.Node, nodes: Sequence[ir.Node], a: Value) -> Result:
    """MatMul(a, repeat(x)) → Reshape(MatMul(Reshape(a), x)), where repeat(x) may be transposed before the product.

    repeat(x) is Reshape(Expand(Unsqueeze(x))) and repeats each head of x (batch, heads, length, size) n times in
    succession. Legal because the n heads of ``a`` that meet one head of x are n times as many rows of one product.
    Attention computes this itself, so from opset 23 on the products of an attention that it expresses stay.
    """
    swap = producer_of(node.inputs[1], "Transpose")
    order = permutation_of(swap)
    repeat = match_repeat(node.inputs[1] if swap is None else swap.inputs[0])
    if repeat is None or (swap is not None and order != [0, 1, 3, 2]):
        return None
    if f.editor.opset >= fold_repeated_heads.since and _may_become_attention(node):
        return "Attention shares the heads itself"
    sizes = dims(a)
    if sizes is None or len(sizes) != 4 or sizes[1] != repeat.heads * repeat.copies:
        return f"the first operand, of shape {sizes}, does not have the repeated heads"
    other = repeat.source if swap is None else f.Transpose(repeat.source, perm=order)
    length = sizes[2] if isinstance(sizes[2], int) else -1
    rows = length * repeat.copies if length > 0 else -1
    return f.Reshape(f.MatMul(f.Reshape(a, [0, repeat.heads, rows, 0]), other), [0, sizes[1], length, 0])


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
    """The value ``source`` (batch, heads, length, size), each head of which is repeated ``copies`` times."""

    source: Value
    heads: int
    copies: int


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
    return _Repeat(source, heads, copies) if repeats_heads else None
