"""A product with a reciprocal as a quotient."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import commuted_inputs, single_use_producer
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["CanonicalizeReciprocals"]


class CanonicalizeReciprocals(Rewrite):
    """x * Reciprocal(y) → x / y; Reciprocal(Sqrt(y)) is what rsqrt becomes, in every RMS norm.

    Legal where no other node reads the reciprocal. Rounded once instead of twice, so never less exact. ONNX Runtime
    recognises an RMS norm by the quotient.
    """

    name = "canonicalize_reciprocals"
    op_types = ("Mul",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one product."""
        for x, other in commuted_inputs(node):
            before = single_use_producer(other, "Reciprocal")
            if before is not None:
                editor.replace(node, "Div", [x, before.inputs[0]], absorbed=[before])
                return True
        return False
