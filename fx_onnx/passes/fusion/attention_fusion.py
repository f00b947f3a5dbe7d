"""Fusion of attention that the model computes from MatMul and Softmax."""

from __future__ import annotations

import math
from typing import NamedTuple

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.cleanup.transposes import permutation_of
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.fusion.repeated_heads import match_repeat
from fx_onnx.passes.matchers import (
    attribute,
    commuted_inputs,
    constant_number,
    dims,
    is_absorbable,
    producer_of,
    single_use_producer,
)
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FuseAttention"]


class FuseAttention(Rewrite):
    """MatMul(Softmax(scale * MatMul(q, kᵀ) + mask), v) → Attention(q, k, v, mask); the scale may be on q instead.

    Legal where q, k and v are (batch, heads, length, size) with the same batch and heads, the scale is a constant, and
    the mask broadcasts over batch and heads only, or is expanded to the lengths of the queries and keys. A limit of the
    scores, cap * Tanh(scores / cap), becomes the attribute ``softcap``. No other node may read an intermediate result.
    """

    name = "fuse_attention"
    op_types = ("MatMul",)
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
        if found.query.dtype not in (DataType.FLOAT, DataType.FLOAT16):
            return self.declines(node, "the dtype is %s", found.query.dtype)
        query, key, values = dims(found.query), dims(found.transposed), dims(value)
        if query is None or key is None or values is None or not len(query) == len(key) == len(values) == 4:
            return self.declines(node, "the queries, keys or values are not known to have four dims")
        if not query[:2] == key[:2] == values[:2]:
            return self.declines(node, "batch and heads differ: queries %s, keys %s, values %s", query, key, values)
        mask = _fitting_mask(found, (*query[:3], key[3]), node, editor)
        if found.mask is not None and mask is None:
            return self.declines(node, "the mask broadcasts over queries or keys")
        inputs = [found.query, _transposed_back(found.transposed, node, editor), value]
        inputs += [mask] if mask is not None else []
        attributes = {"scale": found.scale, "softcap": found.softcap}
        editor.replace(node, "Attention", inputs, attributes, [*found.absorbed, softmax])
        return True


class _Scores(NamedTuple):
    """The attention scores scale * query @ transposed + mask, and the nodes that compute them.

    ``softcap`` limits the scores before the mask is added; None if there is no limit.
    """

    query: ir.Value
    transposed: ir.Value
    scale: float
    softcap: float | None
    mask: ir.Value | None
    absorbed: list[ir.Node]


def _match_scores(value: ir.Value | None) -> _Scores | None:
    """Matches the attention scores, whose intermediate results have one consumer each."""
    absorbed: list[ir.Node] = []
    mask, plus = None, single_use_producer(value, "Add")
    if plus is not None:
        absorbed.append(plus)
        sides = [side for side in plus.inputs if single_use_producer(side, "MatMul", "Mul", "Div") is not None]
        if len(sides) != 1:
            return None
        value, mask = sides[0], plus.inputs[1 - plus.inputs.index(sides[0])]
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
    return _Scores(query, transposed, outer * inner, softcap, mask, [*absorbed, product])


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
    """Returns the mask, which must broadcast over batch and heads only, or an Expand of it; None if it does not fit.

    A dim of the mask may have another name than that of the scores although both are equal for all inputs, as in layers
    with a sliding window. The Expand makes the mask as large as the scores.
    """
    found = dims(scores.mask)
    if found is None or not 2 <= len(found) <= 4:
        return None
    if any(size not in (1, whole) for size, whole in zip(found[:-2], sizes[4 - len(found) : 2], strict=False)):
        return None
    if found[-2:] == sizes[2:]:
        return scores.mask
    total = _total_length(scores, editor)
    if total is None or 1 in found[-2:] or dims(node.inputs[0]) != sizes:
        return None
    f = NodeBuilder(node, editor, scores.query.dtype)
    length = f.Shape(total.new, start=total.axis, end=total.axis + 1)
    keys = f.Add(f.Shape(total.past, start=2, end=3), length)
    leading = (1, 1, *found[:-2])[-2:]
    return f.Expand(scores.mask, f.Concat([1, 1], length, keys, axis=0), sizes=(*leading, *sizes[2:]))


class _TotalLength(NamedTuple):
    """The number of keys: those of ``past``, (batch, heads, length, size), and as many as axis ``axis`` of ``new``."""

    past: ir.Value
    new: ir.Value
    axis: int


def _total_length(scores: _Scores, editor: Editor) -> _TotalLength | None:
    """Returns the number of keys where they are Concat(past, new tokens) and each new token is a query; else None."""
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
    for value in editor.model.graph.inputs if editor.function is None else ():
        if sizes[2] in (dims(value) or ()):
            return _TotalLength(past, value, (dims(value) or ()).index(sizes[2]))
    return None


def _transposed_back(value: ir.Value, node: ir.Node, editor: Editor) -> ir.Value:
    """Returns the value with its last two axes swapped. A Transpose that produces the value is merged into the swap."""
    before = producer_of(value, "Transpose")
    order = permutation_of(before)
    source = before.inputs[0] if before is not None and order is not None else value
    first, second, third, fourth = order or [0, 1, 2, 3]
    swapped = [first, second, fourth, third]
    if swapped == [0, 1, 2, 3] and source is not None:
        return source
    batch, heads, size, length = dims(value) or ()
    f = NodeBuilder(before or node, editor, value.dtype, after=value)
    return f.Transpose(source, perm=swapped, sizes=[batch, heads, length, size])
