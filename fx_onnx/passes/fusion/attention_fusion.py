"""Fusion of attention that the model computes from MatMul and Softmax."""

from __future__ import annotations

import math
from typing import NamedTuple

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.core.size_rules import broadcast_shapes
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.fusion.repeated_heads import match_repeat
from fx_onnx.passes.matchers import (
    attribute,
    commuted_inputs,
    constant_number,
    dims,
    is_absorbable,
    permutation_of,
    producer_of,
    single_use_producer,
)
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FuseAttention"]


class FuseAttention(Rewrite):
    """MatMul(Softmax(scale * MatMul(q, kᵀ) + mask), v) → Attention(q, k, v, mask); the scale may be on q instead.

    Legal where q, k and v are (batch, heads, length, size) with the same batch and heads, the scale is a constant, and
    the mask broadcasts over batch and heads only, or is expanded to the lengths of the queries and keys. A limit of the
    scores, cap * Tanh(scores / cap), becomes the attribute ``softcap``. Several masks, such as a bias of the positions
    and padding, are added up, in float32 only: in float16, the sum of a bias and the lowest number may overflow. No
    other node may read an intermediate result.
    """

    name = "fuse_attention"
    op_types = ("MatMul",)
    producers = frozenset({"Softmax"})
    since = 23

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Fuses at the second product."""
        softmax = producer_of(node.inputs[0], "Softmax")
        sizes, value = dims(node.outputs[0]), node.inputs[1]
        if softmax is None or sizes is None or len(sizes) != 4 or attribute(softmax, "axis", -1) not in (-1, 3):
            return False
        if not is_absorbable(softmax.outputs[0]):
            return self.declines(node, "another node reads the Softmax")
        found = _match_scores(softmax.inputs[0])
        if found is None:
            return self.declines(node, "the Softmax is not of scale * MatMul + mask with one consumer for each result")
        dtype = found.query.dtype
        if dtype != DataType.FLOAT and (dtype != DataType.FLOAT16 or len(found.masks) > 1):
            return self.declines(node, "the dtype is %s, and there are %d masks", dtype, len(found.masks))
        query, key, values = dims(found.query), dims(found.transposed), dims(value)
        if query is None or key is None or values is None or not len(query) == len(key) == len(values) == 4:
            return self.declines(node, "the queries, keys or values are not known to have four dims")
        if not query[:2] == key[:2] == values[:2]:
            return self.declines(node, "batch and heads differ: queries %s, keys %s, values %s", query, key, values)
        mask = _fitting_mask(found, (*query[:3], key[3]), node, editor) if found.masks else None
        if found.masks and mask is None:
            return self.declines(node, "the mask broadcasts over keys, or its shape is not that of the scores")
        inputs = [found.query, _transposed_back(found.transposed, node, editor), value]
        inputs += [mask] if mask is not None else []
        attributes = {"scale": found.scale, "softcap": found.softcap}
        editor.replace(node, "Attention", inputs, attributes, [*found.absorbed, softmax])
        return True


class _Scores(NamedTuple):
    """The attention scores scale * query @ transposed + masks, and the nodes that compute them.

    ``softcap`` limits the scores before the masks are added; None if there is no limit.
    """

    query: ir.Value
    transposed: ir.Value
    scale: float
    softcap: float | None
    masks: tuple[ir.Value, ...]
    absorbed: list[ir.Node]


def _match_scores(value: ir.Value | None) -> _Scores | None:
    """Matches the attention scores, whose intermediate results have one consumer each."""
    plus = single_use_producer(value, "Add")
    if plus is None:
        return _match_limited(value)
    for scores, mask in commuted_inputs(plus):
        found = _match_scores(scores)
        if found is not None and mask is not None:
            return found._replace(masks=(*found.masks, mask), absorbed=[plus, *found.absorbed])
    return None


def _match_limited(value: ir.Value | None) -> _Scores | None:
    """Matches the scores without masks."""
    absorbed: list[ir.Node] = []
    value, outer = _unscaled(value, absorbed)
    tanh, softcap = single_use_producer(value, "Tanh"), None
    if tanh is not None:
        softcap = outer
        value, inverse = _unscaled(tanh.inputs[0], absorbed)
        if softcap <= 0 or not math.isclose(softcap * inverse, 1, rel_tol=1e-6):
            return None
        absorbed.append(tanh)
        value, outer = _unscaled(value, absorbed)
    product = single_use_producer(value, "MatMul")
    if product is None:
        return None
    query, inner = _unscaled(product.inputs[0], absorbed)
    transposed = product.inputs[1]
    if query is None or transposed is None:
        return None
    return _Scores(query, transposed, outer * inner, softcap, (), [*absorbed, product])


def _unscaled(value: ir.Value | None, absorbed: list[ir.Node]) -> tuple[ir.Value | None, float]:
    """Returns x and the constant factor of a product or quotient, whose node is added to ``absorbed``.

    Any other value is returned with the factor 1.
    """
    node = single_use_producer(value, "Mul", "Div")
    for x, factor in commuted_inputs(node) if node is not None else ():
        scale = constant_number(factor)
        if node is None or scale is None or (node.op_type == "Div" and (factor is node.inputs[0] or not scale)):
            continue
        absorbed.append(node)
        return x, scale if node.op_type == "Mul" else 1 / scale
    return value, 1.0


def _fitting_mask(scores: _Scores, sizes: tuple[int | str, ...], node: ir.Node, editor: Editor) -> ir.Value | None:
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
    f, whole = NodeBuilder(node, editor, scores.query.dtype), None
    if found[-2:] != sizes[2:]:
        whole = _lengths(f, scores, found[-2:], sizes[2:]) if dims(node.inputs[0]) == sizes else None
        if whole is None:
            return None
    mask = scores.masks[0]
    for other in scores.masks[1:]:
        mask = f.Add(mask, other)
    return mask if whole is None else f.Expand(mask, whole, sizes=((1, 1, *found[:-2])[-2:]) + sizes[2:])


def _lengths(
    f: NodeBuilder, scores: _Scores, found: tuple[int | str, ...], sizes: tuple[int | str, ...]
) -> ir.Value | None:
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


def _queries(f: NodeBuilder, scores: _Scores) -> ir.Value:
    """Returns the number of queries, from an input of the graph if one has that size, so that all layers share it."""
    size = (dims(scores.query) or ())[2]
    for value in f.editor.model.graph.inputs if f.editor.function is None else ():
        if size in (dims(value) or ()):
            axis = (dims(value) or ()).index(size)
            return f.Shape(value, start=axis, end=axis + 1)
    return f.Shape(scores.query, start=2, end=3)


def _past_keys(scores: _Scores) -> ir.Value | None:
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


def _transposed_back(value: ir.Value, node: ir.Node, editor: Editor) -> ir.Value:
    """Returns the value with its last two axes swapped. A Transpose that produces the value is merged into the swap."""
    before = producer_of(value, "Transpose")
    order = permutation_of(before)
    source = before.inputs[0] if before is not None and order is not None else value
    first, second, third, fourth = order or [0, 1, 2, 3]
    swapped = [first, second, fourth, third]
    if swapped == [0, 1, 2, 3] and source is not None:
        return source
    f = NodeBuilder(before or node, editor, value.dtype, after=value)
    return f.Transpose(source, perm=swapped)
