"""Less as Greater, for a runtime whose Less is wrong for negative numbers.

MNN (measured with 3.6.1, on a CPU) computes a wrong Less of two negative float32 numbers: ``-3.0 < -1.0`` is false,
``-1.0 < -2.5`` is true. Its Greater, LessOrEqual and GreaterOrEqual are right.
"""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.core.dtypes import is_float
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeLess"]


class LegalizeLess(Rewrite):
    """Less(a, b) → Greater(b, a), for floats.

    Legal because the two are equal, also for NaN. The pass belongs to the target mnn.
    """

    name = "legalize_less"
    op_types = ("Less",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one Less."""
        a, b = node.inputs
        if a is None or a.dtype is None or not is_float(a.dtype):
            return False
        editor.replace(node, "Greater", [b, a], {})
        return True
