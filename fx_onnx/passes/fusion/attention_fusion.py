"""Attention that the model's code spells out, as one node."""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.cleanup.transposes import permutation_of
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, commuted_inputs, constant_number, dims, producer_of, single_use_producer
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FuseAttention"]


class FuseAttention(Rewrite):
    """MatMul(Softmax(scale * MatMul(q, kᵀ) + mask), v) → Attention(q, k, v, mask); the scale may be on q instead.

    Legal where q, k and v are (batch, heads, length, size) with the same batch and heads, the scale is a constant, the
    mask has the sizes of queries and keys and broadcasts over batch and heads only, and no other node reads what is
    between.
    """

    name = "fuse_attention"
    op_types = ("MatMul",)
    since = 23

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Fuses at the second product."""
        softmax = single_use_producer(node.inputs[0], "Softmax")
        sizes, value = dims(node.outputs[0]), node.inputs[1]
        if softmax is None or sizes is None or len(sizes) != 4 or attribute(softmax, "axis", -1) not in (-1, 3):
            return False
        found = _scores(softmax.inputs[0])
        if found is None or found.query.dtype not in (DataType.FLOAT, DataType.FLOAT16):
            return False
        query, key, values = dims(found.query), dims(found.transposed), dims(value)
        if query is None or key is None or values is None or not len(query) == len(key) == len(values) == 4:
            return False
        if not query[:2] == key[:2] == values[:2] or not _is_mask(found.mask, (*query[:2], query[2], key[3])):
            return False
        inputs = [found.query, _transposed_back(found.transposed, node, editor), value]
        inputs += [found.mask] if found.mask is not None else []
        editor.replace(node, "Attention", inputs, {"scale": found.scale}, [*found.absorbed, softmax])
        return True


class _Scores(NamedTuple):
    """What the softmax is of: scale * query @ transposed + mask, and the nodes that compute it."""

    query: ir.Value
    transposed: ir.Value
    scale: float
    mask: ir.Value | None
    absorbed: list[ir.Node]


def _scores(value: ir.Value | None) -> _Scores | None:
    absorbed: list[ir.Node] = []
    mask, plus = None, single_use_producer(value, "Add")
    if plus is not None:
        absorbed.append(plus)
        sides = [side for side in plus.inputs if single_use_producer(side, "MatMul", "Mul", "Div") is not None]
        if len(sides) != 1:
            return None
        value, mask = sides[0], plus.inputs[1 - plus.inputs.index(sides[0])]
    value, outer = _unscaled(value, absorbed)
    product = single_use_producer(value, "MatMul")
    if product is None:
        return None
    query, inner = _unscaled(product.inputs[0], absorbed)
    transposed = product.inputs[1]
    if query is None or transposed is None:
        return None
    return _Scores(query, transposed, outer * inner, mask, [*absorbed, product])


def _unscaled(value: ir.Value | None, absorbed: list[ir.Node]) -> tuple[ir.Value | None, float]:
    """The value and the constant it is multiplied with; the node of the product goes to ``absorbed``."""
    node = single_use_producer(value, "Mul", "Div")
    for x, factor in commuted_inputs(node) if node is not None else ():
        scale = constant_number(factor)
        if node is None or scale is None or (node.op_type == "Div" and (factor is node.inputs[0] or not scale)):
            continue
        absorbed.append(node)
        return x, scale if node.op_type == "Mul" else 1 / scale
    return value, 1.0


def _is_mask(mask: ir.Value | None, scores: tuple[int | str, ...]) -> bool:
    """Whether there is none, or it broadcasts over leading axes only."""
    if mask is None:
        return True
    sizes = dims(mask)
    if sizes is None or not 2 <= len(sizes) <= 4 or sizes[-2:] != scores[2:]:
        return False
    leading = scores[4 - len(sizes) : 2]
    return all(size in (1, whole) for size, whole in zip(sizes, leading, strict=False))


def _transposed_back(value: ir.Value, node: ir.Node, editor: Editor) -> ir.Value:
    """The value with its last two axes swapped: what a Transpose before it, if there is one, makes of its own input."""
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
