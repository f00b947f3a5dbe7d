"""Elimination of a shift by the largest element before Softmax."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, constant_integers, dims, single_use_producer
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["EliminateSoftmaxShifts"]


class EliminateSoftmaxShifts(Rewrite):
    """Softmax(x - ReduceMax(x)) → Softmax(x).

    Legal where the maximum is along the axis of Softmax: Softmax subtracts it itself before it computes exponentials.
    """

    name = "eliminate_softmax_shifts"
    op_types = ("Softmax",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Removes the subtraction before one Softmax."""
        shift = single_use_producer(node.inputs[0], "Sub")
        largest = single_use_producer(shift.inputs[1], "ReduceMax") if shift is not None else None
        if shift is None or largest is None or largest.inputs[0] is not shift.inputs[0]:
            return False
        rank, axes = len(dims(node.inputs[0]) or ()), constant_integers((*largest.inputs, None)[1])
        if not rank or not attribute(largest, "keepdims", 1):
            return self.declines(node, "the shape is not known, or the maximum has no axis of size 1")
        if axes is None or [axis % rank for axis in axes] != [attribute(node, "axis", -1) % rank]:
            return self.declines(node, "the maximum is along other axes")
        editor.replace(node, "Softmax", [shift.inputs[0]], absorbed=[shift, largest])
        return True
