"""Fusion of attention that the model computes from MatMul and Softmax."""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.core.size_rules import broadcast_shapes
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.fusion.repeated_heads import match_repeat
from fx_onnx.passes.matchers import attribute, dims, permutation_of, producer_of
from fx_onnx.passes.rules import Result, rule

__all__ = ["fuse_attention"]

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
    masks = [each for each in (first, second, third, fourth) if each is not None]
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
    found = broadcast_shapes(*known) if len(known) == len(shapes) else None
    if found is None or not 2 <= len(found) <= 4:
        return None
    if any(size not in (1, whole) for size, whole in zip(found[:-2], sizes[4 - len(found) : 2], strict=False)):
        return None
    whole = None
    if found[-2:] != sizes[2:]:
        whole = _lengths(f, scores, found[-2:], sizes[2:]) if dims(f.node.inputs[0]) == sizes else None
        if whole is None:
            return None
    mask = scores.masks[0]
    for other in scores.masks[1:]:
        mask = f.Add(mask, other)
    return mask if whole is None else f.Expand(mask, whole, sizes=((1, 1, *found[:-2])[-2:]) + sizes[2:])


def _lengths(
    f: NodeBuilder, scores: _Scores, found: tuple[int | str, ...], sizes: tuple[int | str, ...]
) -> Value | None:
    """Returns the shape (1, 1, queries, keys) for the Expand of a mask of the lengths ``found``; None if it is wrong.

    A mask may broadcast over the queries: it hides padding from all of them. Or its dims have other names than those
    of the scores although both are equal for all inputs, as in layers with a sliding window.
    """
    if found == (1, sizes[1]):
        queries = sizes[0]
        return (
            f.constant([1, 1, queries, 1])
            if isinstance(queries, int)
            else f.Concat([1, 1], _queries(f, scores), [1], axis=0)
        )
    past = _past_keys(scores)
    if past is None or 1 in found:
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
