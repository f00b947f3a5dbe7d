"""Gathers whose indices are a range, in a form that ONNX Runtime does not fuse into a Slice.

ONNX Runtime's GatherToSliceFusion replaces ``Gather(x, Range(start, limit, delta))`` by
``Slice(x, start, limit, delta)``. The two differ where ``start`` or ``limit`` is negative, because Slice counts a
negative bound from the end of the axis: ``x[arange(n - 1, -1, -1)]`` then gives an empty tensor. Measured with
ONNX Runtime 1.31.1 at opsets 15 to 24.
"""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import constant_array, constant_number, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeRangeIndices", "is_nonnegative"]

# Operators whose results are not negative if the operands at these positions are not negative.
_KEEPS_NONNEGATIVE: dict[str, tuple[int, ...]] = {
    "Add": (0, 1), "Mul": (0, 1), "Div": (0, 1), "Cast": (0,), "Identity": (0,),
    "Squeeze": (0,), "Unsqueeze": (0,), "Reshape": (0,), "Gather": (0,), "Slice": (0,),
}  # fmt: skip
_DEPTH = 16  # the longest chain of operands that the proof follows; expressions over sizes are shorter


class LegalizeRangeIndices(Rewrite):
    """Gather(x, Range(start, limit, delta)) → Gather(x, Sub(start, Range(0, start - limit, -delta))).

    Legal because the two ranges are equal: both have ⌈(limit - start) / delta⌉ elements. Applies where a bound of the
    range may be negative and the Gather is its only consumer, which is the pattern that ONNX Runtime fuses.
    """

    name = "legalize_range_indices"
    op_types = ("Range",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one range that may have a negative bound."""
        indices = node.outputs[0]
        uses = list(indices.uses())
        if not any(use.node.op_type == "Gather" and not use.node.domain and use.idx == 1 for use in uses):
            return False
        if len(uses) > 1:
            return self.declines(node, "it has several consumers, so ONNX Runtime does not fuse it")
        start, limit, delta = node.inputs
        if all(is_nonnegative(bound) for bound in (start, limit)):
            return self.declines(node, "neither bound can be negative")
        f = NodeBuilder(node, editor, indices.dtype)
        steps = f.Range(f.constant(0), f.Sub(start, limit), f.Neg(delta))
        editor.replace(node, "Sub", [start, steps], {})
        return True


def is_nonnegative(value: ir.Value | None, depth: int = _DEPTH) -> bool:
    """Returns whether the value is provably not negative, as every size is."""
    number = constant_array(value)
    if number is not None:
        return bool((number >= 0).all())
    if producer_of(value, "Shape", "Size") is not None:
        return True
    node = producer_of(value, *_KEEPS_NONNEGATIVE, "Max", "Range")
    if node is None or depth == 0:
        return False
    if node.op_type == "Range":
        step = constant_number(node.inputs[2])
        return step is not None and step > 0 and is_nonnegative(node.inputs[0], depth - 1)
    if node.op_type == "Max":
        return any(is_nonnegative(operand, depth - 1) for operand in node.inputs)
    return all(is_nonnegative(node.inputs[place], depth - 1) for place in _KEEPS_NONNEGATIVE[node.op_type])
