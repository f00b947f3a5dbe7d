"""The axis of LogSoftmax, for a runtime that has another default than ONNX.

MNN (measured with 3.6.1) crashes at a LogSoftmax without the attribute ``axis``.
"""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeLogSoftmax"]


class LegalizeLogSoftmax(Rewrite):
    """LogSoftmax(x) → LogSoftmax(x, axis=-1).

    Legal because -1 is the default from opset 13 on. The pass belongs to the target mnn.
    """

    name = "legalize_log_softmax"
    op_types = ("LogSoftmax",)
    since = 13

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Writes the axis of one LogSoftmax."""
        if "axis" in node.attributes:
            return False
        node.attributes["axis"] = ir.AttrInt64("axis", -1)
        return True
