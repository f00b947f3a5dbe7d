"""Conversion of a Gemm between two Reshapes to a batched MatMul."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, chain, dims, is_absorbable
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["BatchGemm"]


class BatchGemm(Rewrite):
    """Reshape(Gemm(Reshape(x), w, c)) → Add(MatMul(x, w), c), without the Add where there is no c.

    The Conv1D layer of GPT-2 in transformers has this form. Legal where the Reshapes only flatten and unflatten the
    leading axes, c has one axis, and the Gemm neither scales nor transposes. No other node may read the Gemm.
    """

    name = "batch_gemm"
    op_types = ("Reshape",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites at the second Reshape."""
        found = chain(node.inputs[0], "Gemm", "Reshape")
        if found is None:
            return False
        gemm, before = found
        if not is_absorbable(gemm.outputs[0]):
            return self.declines(node, "another node reads the Gemm")
        if not _is_plain(gemm):
            return self.declines(node, "the Gemm scales or transposes")
        x, w = before.inputs[0], gemm.inputs[1]
        c = gemm.inputs[2] if len(gemm.inputs) > 2 else None
        sizes, result, rows = dims(x), dims(node.outputs[0]), dims(before.outputs[0])
        if not sizes or not result or not rows or sizes[:-1] != result[:-1] or sizes[-1] != rows[-1]:
            return self.declines(node, "the Reshapes change more than the leading axes")
        columns = dims(w)
        if columns is None or result[-1] != columns[1] or (c is not None and dims(c) != (columns[1],)):
            return self.declines(node, "the addend is not one number for each column")
        if c is None:
            editor.replace(node, "MatMul", [x, w], {}, absorbed=[before, gemm])
            return True
        product = NodeBuilder(gemm, editor, node.outputs[0].dtype).MatMul(x, w, sizes=result)
        editor.replace(node, "Add", [product, c], {}, absorbed=[before, gemm])
        return True


def _is_plain(node: ir.Node) -> bool:
    """Returns whether a Gemm neither scales nor transposes."""
    if attribute(node, "transA", 0) or attribute(node, "transB", 0):
        return False
    return bool(attribute(node, "alpha", 1.0) == 1.0 and attribute(node, "beta", 1.0) == 1.0)
