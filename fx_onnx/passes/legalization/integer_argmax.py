"""ArgMax and ArgMin of integers as TopK, for runtimes whose ArgMax takes floats only."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.core.dtypes import is_float
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeIntegerArgMax"]


class LegalizeIntegerArgMax(Rewrite):
    """ArgMax(x, axis) → Squeeze(TopK(x, 1, axis).Indices, axis), for integers.

    Legal because TopK puts the first of equal elements first, as ArgMax does. The pass belongs to the target
    onnxruntime-cuda, whose provider has ArgMax of floats and TopK of integers. TopK has 8-bit and 16-bit integers from
    opset 11 on.
    """

    name = "legalize_integer_argmax"
    op_types = ("ArgMax", "ArgMin")
    since = 13

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one ArgMax or ArgMin."""
        x = node.inputs[0]
        if x is None or x.dtype is None or is_float(x.dtype):
            return False
        if attribute(node, "select_last_index", 0):
            return self.declines(node, "TopK has no form that returns the last of equal elements")
        axis, largest = attribute(node, "axis", 0), int(node.op_type == "ArgMax")
        f = NodeBuilder(node, editor, x.dtype)
        indices = f.emit("TopK", [x, [1]], {"axis": axis, "largest": largest}, outputs=2)[1]
        if attribute(node, "keepdims", 1):
            return editor.replace_with_value(node, indices)
        editor.replace(node, "Squeeze", [indices, editor.constant([axis], node)], {})
        return True
