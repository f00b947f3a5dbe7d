"""The bias of a Gemm in float16 as an Add, for a runtime that has the bias in float32 products only.

tract (measured with 0.23.9) adds the bias of a float16 Gemm in float32 and then refuses the dtype of the result.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, dims
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeGemmBias"]


class LegalizeGemmBias(Rewrite):
    """Gemm(x, w, b) → Gemm(x, w) + b, in float16.

    Legal where beta is 1, because this is ONNX's definition; the product is rounded to float16 before the addition.
    The pass belongs to the target tract.
    """

    name = "legalize_gemm_bias"
    op_types = ("Gemm",)
    since = 11  # an earlier Gemm needs its bias

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one Gemm with a bias."""
        x, w, bias = [*node.inputs, None][:3]
        if bias is None or bias.dtype != DataType.FLOAT16:
            return False
        if attribute(node, "beta", 1.0) != 1.0:
            return self.declines(node, "beta is not 1")
        f = NodeBuilder(node, editor, bias.dtype)
        options = {name: value.value for name, value in node.attributes.items() if name != "beta"}
        editor.replace(node, "Add", [f.Gemm(x, w, sizes=dims(node.outputs[0]), **options), bias], {})
        return True
