"""Cumulative counts of booleans in int32, for a runtime that cannot add up int64.

tract (measured with 0.23.9) reads int64 as sizes, and its CumSum of sizes fails in a run: the positions of tokens
that a mask or a padding token tells.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeBooleanCounts"]


class LegalizeBooleanCounts(Rewrite):
    """CumSum(Cast(b, int64)) → Cast(CumSum(Cast(b, int32)), int64), for booleans b.

    Legal because no count exceeds the number of elements, which int32 holds. The pass belongs to the target tract.
    """

    name = "legalize_boolean_counts"
    op_types = ("CumSum",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one CumSum."""
        cast = producer_of(node.inputs[0], "Cast")
        booleans = None if cast is None else cast.inputs[0]
        if node.outputs[0].dtype != DataType.INT64 or booleans is None or booleans.dtype != DataType.BOOL:
            return False
        f = NodeBuilder(node, editor, DataType.INT32)
        counts = f.CumSum(f.Cast(booleans, to=DataType.INT32), node.inputs[1], **dict(node.attributes))
        editor.replace(node, "Cast", [counts], {"to": DataType.INT64})
        return True
