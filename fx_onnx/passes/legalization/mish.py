"""Mish by Softplus and Tanh, for a runtime without Mish: MNN (3.6.1)."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import dims
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeMish"]


class LegalizeMish(Rewrite):
    """Mish(x) → x · Tanh(Softplus(x)).

    Legal because this is ONNX's definition of Mish. The pass belongs to the target mnn.
    """

    name = "legalize_mish"
    op_types = ("Mish",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one Mish."""
        x = node.inputs[0]
        f, sizes = NodeBuilder(node, editor, node.outputs[0].dtype), dims(x)
        editor.replace(node, "Mul", [x, f.Tanh(f.Softplus(x, sizes=sizes), sizes=sizes)], {})
        return True
