"""Canonicalization of products with a reciprocal."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import commuted_inputs, is_absorbable, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["CanonicalizeReciprocals"]


class CanonicalizeReciprocals(Rewrite):
    """x * Reciprocal(y) → x / y. An example is x * rsqrt(y), which each RMS norm contains.

    Legal because a quotient is rounded once and the product with a reciprocal twice, so the result is at least as
    accurate. Applies where no other node reads the Reciprocal. ONNX Runtime fuses an RMS norm only in this form.
    """

    name = "canonicalize_reciprocals"
    op_types = ("Mul",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one product."""
        for x, other in commuted_inputs(node):
            reciprocal = producer_of(other, "Reciprocal")
            if reciprocal is None or other is None:
                continue
            if not is_absorbable(other):
                self.declines(node, "another node reads the Reciprocal")
                continue
            editor.replace(node, "Div", [x, reciprocal.inputs[0]], absorbed=[reciprocal])
            return True
        return False
