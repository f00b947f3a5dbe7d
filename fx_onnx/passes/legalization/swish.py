"""Expansion of Swish into operators for which ONNX Runtime has kernels.

ONNX Runtime has no kernel for Swish. At opset 24 it inlines the operator's function body; at opsets 25 and 26
(measured with ONNX Runtime 1.31.1) it does not, and the model does not load.
"""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeSwish"]


class LegalizeSwish(Rewrite):
    """Swish(x, alpha) → x * Sigmoid(alpha * x).

    Legal because this is the definition of Swish. The pass applies from opset 25 on.
    """

    name = "legalize_swish"
    op_types = ("Swish",)
    since = 25

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one Swish."""
        (x,) = node.inputs
        f = NodeBuilder(node, editor, node.outputs[0].dtype)
        alpha = attribute(node, "alpha", 1.0)
        editor.replace(node, "Mul", [x, f.Sigmoid(x if alpha == 1.0 else f.Mul(x, alpha))], {})
        return True
