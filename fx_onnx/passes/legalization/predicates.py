"""IsNaN, IsInf and Casts to bool as comparisons, for a runtime that computes them wrongly.

MNN (measured with 3.6.1, on a CPU) does not load a model with IsNaN or IsInf, and a Cast to bool keeps the number, so
that ``And`` multiplies such numbers. Its comparisons are right, also for NaN and infinite numbers.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, dims
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizePredicates"]


class LegalizePredicates(Rewrite):
    """IsNaN(x) → Not(x ≥ 0 or 0 ≥ x); IsInf(x) → |x| = ∞; Cast(x) to bool → Not(x = 0).

    Legal because NaN is the only number that is neither at least nor at most 0, and because a Cast to bool is false for
    0 only. An IsInf of one sign compares x itself. The pass belongs to the target mnn.
    """

    name = "legalize_predicates"
    op_types = ("IsNaN", "IsInf", "Cast")

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one predicate."""
        x = node.inputs[0]
        if x is None or (
            node.op_type == "Cast" and (node.outputs[0].dtype != DataType.BOOL or x.dtype == DataType.BOOL)
        ):
            return False
        f, sizes = NodeBuilder(node, editor, x.dtype), dims(x)
        if node.op_type == "IsInf":
            either = attribute(node, "detect_negative", 1), attribute(node, "detect_positive", 1)
            if either == (0, 0):
                return self.declines(node, "it detects no sign")
            number = f.Abs(x, sizes=sizes) if either == (1, 1) else x
            editor.replace(node, "Equal", [number, f.constant(float("inf") if either[1] else float("-inf"))], {})
        elif node.op_type == "IsNaN":
            ordered = f.Or(f.GreaterOrEqual(x, 0.0, sizes=sizes), f.GreaterOrEqual(0.0, x, sizes=sizes), sizes=sizes)
            editor.replace(node, "Not", [ordered], {})
        else:
            editor.replace(node, "Not", [f.Equal(x, f.constant(0), sizes=sizes)], {})
        return True
