"""Fusion of attention that the model computes from MatMul and Softmax, with its repeated heads and its cache."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import (
    attribute,
    chain,
    constant_integers,
    constant_number,
    dims,
    permutation_of,
    producer_of,
    single_use,
)
from fx_onnx.passes.rules import Result, rule
from fx_onnx.sizes.size_rules import broadcast_shapes

__all__ = [
    "Positions",
    "are_pasts",
    "fold_cache",
    "fold_repeated_heads",
    "fold_repeats_into_rows",
    "fuse_attention",
    "fuse_tensor_scatter",
    "has_cache",
    "match_positions",
    "match_repeat",
    "replace_joined",
]


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
def fold_repeats_into_rows(f: NodeBuilder, node: ir.Node, a: Value) -> Result:
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
    if not all(_is_returned(joined, node) for joined in (keys, values)):
        return "the graph does not return the Concats, or other nodes read them"
    inputs = [query, keys.inputs[1], values.inputs[1], mask, keys.inputs[0], values.inputs[0]]
    result, *presents = f.emit("Attention", inputs, node.attributes, outputs=3)
    replace_joined((keys, values), presents, f)
    return result


def are_pasts(keys: ir.Node, values: ir.Node) -> bool:
    """Returns whether both Concats join two 4-D values along the length, with equal lengths."""
    lengths = []
    for joined in (keys, values):
        sizes = [dims(value) for value in joined.inputs]
        if len(sizes) != 2 or any(size is None or len(size) != 4 for size in sizes):
            return False
        if attribute(joined, "axis") not in (2, -2):
            return False
        lengths.append([size[2] for size in sizes if size is not None])
    return lengths[0] == lengths[1]


def _is_returned(concat: ir.Node, node: ir.Node) -> bool:
    """Returns whether the graph returns the result, or a part of it, and no node before the Attention reads it."""
    value = concat.outputs[0]
    others = [use.node for use in value.uses() if use.node is not node]
    if concat.graph is not node.graph or len(value.uses()) != len(others) + 1:
        return False
    ends = [other.graph is node.graph and not any(output.uses() for output in other.outputs) for other in others]
    return all(ends) and (value.is_graph_output() or bool(others))


def replace_joined(concats: Iterable[ir.Node], presents: Iterable[Value], f: NodeBuilder) -> None:
    """Replaces the results of the Concats by those of a new node. Their consumers are moved behind ``f.node``."""
    graph = f.node.graph
    for concat, present in zip(concats, presents, strict=True):
        consumers = [use.node for use in concat.outputs[0].uses() if use.node is not f.node]
        f.editor.replace_result(concat.outputs[0], present)
        for consumer in consumers:
            if graph is not None:
                graph.remove(consumer)
                graph.insert_after(f.node, consumer)


_PRODUCT = "number.scale * MatMul(number.inner * query, transposed)"
_LIMITED = f"(number.softcap * Tanh({_PRODUCT}) | {_PRODUCT})"
_MASKED = f"((({_LIMITED} + first | {_LIMITED}) + second | {_LIMITED}) + third | {_LIMITED}) + fourth | {_LIMITED}"


@rule(f"MatMul(Softmax({_MASKED}, axis=axis), value)", since=23)
def fuse_attention(
    f: NodeBuilder,
    node: ir.Node,
    query: Value,
    transposed: Value,
    value: Value,
    first: Value | None,
    second: Value | None,
    third: Value | None,
    fourth: Value | None,
    scale: float,
    inner: float,
    softcap: float | None,
    axis: int,
) -> Result:
    """MatMul(Softmax(scale * MatMul(q, kᵀ) + mask), v) → Attention(q, k, v, mask); the scale may be on q instead.

    Legal where q, k and v are (batch, heads, length, size) with the same batch and heads, the scale is a constant, and
    the mask broadcasts over batch and heads only, or is expanded to the lengths of the queries and keys. A limit of the
    scores, cap * Tanh(scores / cap), becomes the attribute ``softcap``. Up to four masks, such as a bias of the
    positions and padding, are added up, in float32 only: in float16, the sum of a bias and the lowest number may
    overflow. No other node may read an intermediate result.
    """
    masks = [term for term in (first, second, third, fourth) if term is not None]
    if len(dims(node.outputs[0]) or ()) != 4 or axis not in (-1, 3) or (softcap is not None and softcap <= 0):
        return None
    if query.dtype != DataType.FLOAT and (query.dtype != DataType.FLOAT16 or len(masks) > 1):
        return f"the dtype is {query.dtype}, and there are {len(masks)} masks"
    queries, keys, values = dims(query), dims(transposed), dims(value)
    if queries is None or keys is None or values is None or not len(queries) == len(keys) == len(values) == 4:
        return "the queries, keys or values are not known to have four dims"
    if not queries[:2] == keys[:2] == values[:2]:
        return f"batch and heads differ: queries {queries}, keys {keys}, values {values}"
    scores = _Scores(query, transposed, tuple(masks))
    mask = _fitting_mask(f, scores, (*queries[:3], keys[3])) if masks else None
    if masks and mask is None:
        return "the mask broadcasts over keys, or its shape is not that of the scores"
    inputs = [query, _transposed_back(transposed, f), value, *([] if mask is None else [mask])]
    return f.Attention(*inputs, scale=scale * inner * (softcap or 1.0), softcap=softcap)


class _Scores(NamedTuple):
    """The operands of the product of queries and keys, and the masks that are added to it."""

    query: Value
    transposed: Value
    masks: tuple[Value, ...]


def _fitting_mask(f: NodeBuilder, scores: _Scores, sizes: tuple[int | str, ...]) -> Value | None:
    """Returns the sum of the masks, as large as the scores in both lengths; None if it does not fit.

    It broadcasts over batch and heads only. Layers with the same masks share the nodes of the sum and of the Expand,
    because common subexpressions are eliminated.
    """
    shapes = [dims(mask) for mask in scores.masks]
    known = [shape for shape in shapes if shape is not None]
    shape = broadcast_shapes(*known) if len(known) == len(shapes) else None
    if shape is None or not 2 <= len(shape) <= 4:
        return None
    if any(size not in (1, whole) for size, whole in zip(shape[:-2], sizes[4 - len(shape) : 2], strict=False)):
        return None
    whole = None
    if shape[-2:] != sizes[2:]:
        whole = _lengths(f, scores, shape[-2:], sizes[2:]) if dims(f.node.inputs[0]) == sizes else None
        if whole is None:
            return None
    mask = scores.masks[0]
    for other in scores.masks[1:]:
        mask = f.Add(mask, other)
    # Given by hand, because the number of keys may be a sum of sizes.
    return mask if whole is None else f.Expand(mask, whole, sizes=(*(1, 1, *shape[:-2])[-2:], *sizes[2:]))


def _lengths(
    f: NodeBuilder, scores: _Scores, lengths: tuple[int | str, ...], sizes: tuple[int | str, ...]
) -> Value | None:
    """Returns the shape (1, 1, queries, keys) for the Expand of a mask of these ``lengths``; None if it is wrong.

    A mask may broadcast over the queries: it hides padding from all of them. Or its dims have other names than those
    of the scores although both are equal for all inputs, as in layers with a sliding window.
    """
    if lengths == (1, sizes[1]):
        queries = sizes[0]
        return (
            f.constant([1, 1, queries, 1])
            if isinstance(queries, int)
            else f.Concat([1, 1], _queries(f, scores), [1], axis=0)
        )
    past = _past_keys(scores)
    if past is None or 1 in lengths:
        return None
    length = _queries(f, scores)
    return f.Concat([1, 1], length, f.Add(f.Shape(past, start=2, end=3), length), axis=0)


def _queries(f: NodeBuilder, scores: _Scores) -> Value:
    """Returns the number of queries, from an input of the graph if one has that size, so that all layers share it."""
    size = (dims(scores.query) or ())[2]
    for value in f.editor.model.graph.inputs if f.editor.function is None else ():
        if size in (dims(value) or ()):
            axis = (dims(value) or ()).index(size)
            return f.Shape(value, start=axis, end=axis + 1)
    return f.Shape(scores.query, start=2, end=3)


def _past_keys(scores: _Scores) -> Value | None:
    """Returns the past keys where the keys are Concat(past, new keys) and each new key has a query; else None."""
    swap = producer_of(scores.transposed, "Transpose")
    keys = swap.inputs[0] if swap is not None and permutation_of(swap) == [0, 1, 3, 2] else None
    repeat = match_repeat(keys)
    joined = producer_of(repeat.source if repeat is not None else keys, "Concat")
    if joined is None or len(joined.inputs) != 2 or attribute(joined, "axis") not in (2, -2):
        return None
    (past, new), query = joined.inputs, dims(scores.query)
    sizes = dims(new)
    if past is None or len(dims(past) or ()) != 4 or sizes is None or query is None or sizes[2] != query[2]:
        return None
    return past


def _transposed_back(value: Value, f: NodeBuilder) -> Value:
    """Returns the value with its last two axes swapped. A Transpose that produces the value is merged into the swap."""
    before = producer_of(value, "Transpose")
    order = permutation_of(before)
    source = before.inputs[0] if before is not None and order is not None else value
    first, second, third, fourth = order or [0, 1, 2, 3]
    swapped = [first, second, fourth, third]
    if swapped == [0, 1, 2, 3] and source is not None:
        return source
    behind = NodeBuilder(before or f.node, f.editor, value.dtype, after=value)
    return behind.Transpose(source, perm=swapped)


class Positions(NamedTuple):
    """The positions start, start + 1, ..., start + length - 1.

    Attributes:
        start: the first position, an INT64 of shape []; None if it is 0.
        length: the number of positions, an INT64 of shape [].
    """

    start: Value | None
    length: Value


def match_positions(value: Value | None) -> Positions | None:
    """Returns the positions of a value (length,) that is Range(0, length, 1), or the sum of that and a start."""
    plus = producer_of(value, "Add")
    for counted, start in ((value, None),) if plus is None else (plus.inputs, plus.inputs[::-1]):
        steps = producer_of(counted, "Range")
        if steps is None or (plus is not None and (start is None or dims(start) != ())):
            continue
        first, length, step = steps.inputs
        if length is not None and constant_number(first) == 0 and constant_number(step) == 1:
            return Positions(start, length) if length.dtype == ir.DataType.INT64 else None
    return None


@rule("ScatterElements(cache, index, update, axis=axis, reduction='none')", since=24)
def fuse_tensor_scatter(f: NodeBuilder, cache: Value, index: Value, update: Value, axis: int) -> Result:
    """ScatterElements(cache, start + Range(0, n, 1), x) → TensorScatter(cache, x, start).

    Legal where the index is the same along all other axes, in which x has the sizes of the cache: the write covers
    whole slices. It must not accumulate, and its axis must not be the first one, the batch. ScatterElements takes as
    many indices as updates, so x has n slices.
    """
    sizes, written = dims(cache), dims(update)
    if sizes is None or written is None or len(sizes) != len(written):
        return None
    axis %= len(sizes)
    positions = _positions_along(index, axis, len(sizes))
    if positions is None:
        return None
    if not axis:
        return "it writes along the first axis"
    if any(sizes[other] != written[other] for other in range(len(sizes)) if other != axis):
        return f"the update has other sizes than the cache: {written} and {sizes}"
    starts = []
    if positions.start is not None:
        starts = [f.Expand(positions.start, f.Shape(cache, start=0, end=1))]
    return f.TensorScatter(cache, update, *starts, axis=axis)


def _positions_along(index: Value | None, axis: int, rank: int) -> Positions | None:
    """Returns the positions that an index tensor has along the axis; None if they depend on another axis too."""
    expand = producer_of(index, "Expand")
    aligned = producer_of(expand.inputs[0] if expand is not None else index, "Unsqueeze")
    axes = constant_integers(aligned.inputs[1]) if aligned is not None else None
    if aligned is None or axes is None or sorted(a % rank for a in axes) != [x for x in range(rank) if x != axis]:
        return None
    return match_positions(aligned.inputs[0])
