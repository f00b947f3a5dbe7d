"""Squares in a form that ONNX Runtime does not fuse into a norm with another epsilon.

ONNX Runtime fuses ``x / Sqrt(ReduceMean(Pow(x, 2)) + epsilon) * w`` into SimplifiedLayerNormalization. It reads only
an epsilon of float32, and takes 1e-5 instead of one of another dtype. It does not fuse a product of x with itself.
Measured with ONNX Runtime 1.31.1.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import constant_number
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeSquares"]


class LegalizeSquares(Rewrite):
    """ReduceMean(Pow(x, 2)) → ReduceMean(x * x), if x is not float32.

    Legal because both are the square.
    """

    name = "legalize_squares"
    op_types = ("Pow",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one square."""
        x, exponent = node.inputs
        if x is None or x.dtype in (None, DataType.FLOAT) or constant_number(exponent) != 2:
            return False
        if not any(use.node.op_type == "ReduceMean" and not use.node.domain for use in node.outputs[0].uses()):
            return False
        editor.replace(node, "Mul", [x, x], {})
        return True
