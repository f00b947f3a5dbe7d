"""Unique of a vector by sorting it, for a runtime without a kernel for Unique."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, is_read
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeUnique"]

_END = 2**63 - 1


class LegalizeUnique(Rewrite):
    """Unique(x) → Gather(s, p), where s is the sorted x and p are the positions at which a run of equal numbers begins.

    Legal because equal numbers are neighbours in s. The numbers of the runs, in the order of x, are the inverse
    indices, and the lengths of the runs are the counts. Each NaN is a run, as in torch. Applies to a vector, or without
    ``axis``.
    """

    name = "legalize_unique"
    op_types = ("Unique",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one Unique, with a node or more for each of its results that is read."""
        x = node.inputs[0]
        if x is None or x.dtype is None or x.dtype == DataType.STRING:
            return self.declines(node, "the dtype is unknown or not a number")
        is_vector = x.shape is not None and len(x.shape) == 1
        if not is_vector and "axis" in node.attributes:
            return self.declines(node, "it compares slices along an axis")
        if not attribute(node, "sorted", 1):
            return self.declines(node, "the result has the order of the first occurrences")
        f = NodeBuilder(node, editor, DataType.INT64)
        flat = x if is_vector else f.Reshape(x, [-1])
        if x.dtype == DataType.BOOL:  # TopK takes numbers
            flat = f.Cast(flat, to=DataType.INT32)
        length = f.Shape(flat, sizes=(1,))
        numbers, order = f.emit("TopK", [flat, length], {"axis": 0, "largest": 0}, outputs=2)
        differs = f.Not(f.Equal(f.Slice(numbers, [1], [_END], [0]), f.Slice(numbers, [0], [-1], [0])))
        # An empty vector has no run, so the first element of this concatenation is cut off.
        begins = f.Slice(f.Concat(np.array([True]), differs, axis=0), [0], length, [0])
        positions = f.Squeeze(f.NonZero(begins), [0])
        if len(node.outputs) > 1 and is_read(node.outputs[1]):
            editor.replace_result(node.outputs[1], f.Gather(order, positions))
        if len(node.outputs) > 2 and is_read(node.outputs[2]):
            runs = f.Sub(f.CumSum(f.Cast(begins, to=DataType.INT64), np.array(0)), 1)
            _, places = f.emit("TopK", [order, length], {"axis": 0, "largest": 0}, outputs=2)
            editor.replace_result(node.outputs[2], f.Gather(runs, places))
        if len(node.outputs) > 3 and is_read(node.outputs[3]):
            ends = f.Concat(f.Slice(positions, [1], [_END], [0]), length, axis=0)
            editor.replace_result(node.outputs[3], f.Sub(ends, positions))
        node.resize_outputs(1)
        if x.dtype == DataType.BOOL:
            editor.replace(node, "Cast", [f.Gather(numbers, positions)], {"to": DataType.BOOL})
        else:
            editor.replace(node, "Gather", [numbers, positions], {"axis": 0})
        editor.remove_if_unused(node)
        return True
