"""Fusion of a residual sum and the norm after it into one operator of ONNX Runtime."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, dims, producer_of, same_shape
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FuseSkipNorm"]


class FuseSkipNorm(Rewrite):
    """RMSNormalization(Add(x, y), w) → com.microsoft.SkipSimplifiedLayerNormalization(x, y, w).

    Legal because the operator returns the sum too, as its fourth result. x and y are (batch, length, size), and w is a
    vector that is no result of a node.
    """

    name = "fuse_skip_norm"
    op_types = ("RMSNormalization",)
    since = 23

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Fuses one norm with the sum before it, whose node becomes the operator."""
        added, weight = producer_of(node.inputs[0], "Add"), node.inputs[1]
        if added is None or added.graph is not node.graph or editor.function is not None:
            return False
        total = added.outputs[0]
        if total.dtype != DataType.FLOAT or len(dims(total) or ()) != 3 or attribute(node, "axis", -1) not in (-1, 2):
            return self.declines(
                node, "the sum is not a float32 value of rank 3 that is normalized along its last axis"
            )
        if not all(same_shape(each, total) for each in added.inputs):
            return self.declines(node, "an operand of the sum broadcasts")
        if weight is None or weight.producer() is not None or len(dims(weight) or ()) != 1:
            return self.declines(node, "the weight is no vector, or is computed")
        attributes = {"epsilon": attribute(node, "epsilon", 1e-5)}
        added.resize_outputs(4)
        editor.replace_result(total, added.outputs[3])
        editor.replace_result(node.outputs[0], total)
        for unused in added.outputs[1:3]:
            unused.name = ""
        inputs = [*added.inputs, weight]
        editor.replace(added, "SkipSimplifiedLayerNormalization", inputs, attributes, [node], domain="com.microsoft")
        editor.remove_if_unused(node)
        return True
