"""Masks of Attention without the lowest number, which ONNX Runtime's CPU provider takes for minus infinity.

A mask may hide all keys from a query, such as one that is padding. Where it does so with the lowest finite number, the
scores are equal, and the result is the mean of the values, in ONNX and in PyTorch. ONNX Runtime 1.31 returns zeros.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.core import metadata
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import constant_array, constant_number, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeLowestMasks"]

_LOWEST = np.finfo(np.float32).min
_NEXT = np.nextafter(_LOWEST, np.float32(0))
_MASKS = ("Where", "Add", "Expand", "Unsqueeze", "Reshape")


class LegalizeLowestMasks(Rewrite):
    """Attention(q, k, v, mask) → Attention(q, k, v, Where(mask = lowest, next, mask)), in float32.

    ``next`` is the number after the lowest one. In a mask Where(condition, 0, lowest), it takes the place of the
    constant. Legal because scores vanish beside both numbers: hidden keys have equal scores.
    """

    name = "legalize_lowest_masks"
    op_types = ("Attention",)
    since = 23

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites the mask of one Attention and of all others that read it."""
        mask = (*node.inputs, None, None, None, None)[3] if metadata.EXPLICIT not in node.meta else None
        return mask is not None and mask.dtype == DataType.FLOAT and _raise(mask, node, editor)


def _raise(mask: ir.Value, node: ir.Node, editor: Editor) -> bool:
    """Replaces the lowest number in a mask that ``node`` reads, before the nodes that only move or add masks."""
    array = constant_array(mask)
    if array is not None and (array != _LOWEST).all():
        return False
    producer = producer_of(mask, *_MASKS)
    if producer is None or not _is_only_a_mask(mask):
        return _raise_after(mask, node, editor)
    if producer.op_type == "Where":
        return _raise_constants(producer, editor)
    parts = producer.inputs if producer.op_type == "Add" else producer.inputs[:1]
    changes = [_raise(part, producer, editor) for part in parts if part is not None]
    return any(changes)


def _is_only_a_mask(value: ir.Value) -> bool:
    """Returns whether all consumers of the value are Attentions that read it as a mask, or sums of masks for these."""
    return not value.is_graph_output() and all(_reads_a_mask(use.node, use.idx) for use in value.uses())


def _reads_a_mask(node: ir.Node, index: int) -> bool:
    if node.op_type in _MASKS and not node.domain and (node.op_type != "Where" or index):
        return _is_only_a_mask(node.outputs[0])
    return (node.op_type, node.domain, index) == ("Attention", "", 3)


def _raise_constants(where: ir.Node, editor: Editor) -> bool:
    """Replaces the lowest number among the two sides of a Where, which are constants or masks themselves."""
    condition, *sides = where.inputs
    comparison = producer_of(condition, "Equal")
    if comparison is not None and constant_number(comparison.inputs[1]) == _LOWEST:
        return False  # this is the Where that _raise_after inserts
    f = NodeBuilder(where, editor, DataType.FLOAT)
    raised = [f.constant(float(_NEXT)) if constant_number(side) == _LOWEST else side for side in sides]
    changed = raised != sides
    if changed:
        editor.replace(where, "Where", [condition, *raised])
    unknown = [side for side in raised if side is not None and constant_array(side) is None]
    changes = [_raise(side, where, editor) for side in unknown]
    return changed or any(changes)


def _raise_after(mask: ir.Value, node: ir.Node, editor: Editor) -> bool:
    """Inserts the replacement after a mask, for all consumers that read it as a mask; in a function for ``node``."""
    in_function = editor.function is not None
    uses = [use for use in mask.uses() if use.node is node or not in_function]
    f = NodeBuilder(node, editor, DataType.FLOAT, after=None if in_function else mask)
    raised = f.Where(f.Equal(mask, float(_LOWEST)), float(_NEXT), mask)
    for consumer, index in uses:
        if _reads_a_mask(consumer, index):
            consumer.replace_input_with(index, raised)
    return True
