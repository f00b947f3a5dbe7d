"""A Gemm between two Reshapes as what it was before: a product of rows."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, dims, producer_of, single_use_producer
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["BatchGemm"]


class BatchGemm(Rewrite):
    """Reshape(Gemm(Reshape(x), w, c)) → Add(MatMul(x, w), c), without the Add where there is no c.

    PyTorch's Conv1D of GPT-2 writes it so. Legal where the Reshapes only join and part the leading axes again, no other
    node reads what is between them, c has one axis, and the Gemm neither scales nor transposes.
    """

    name = "batch_gemm"
    op_types = ("Reshape",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites from the second Reshape backwards."""
        gemm = single_use_producer(node.inputs[0], "Gemm")
        rows = gemm.inputs[0] if gemm is not None else None
        before = producer_of(rows, "Reshape")
        if gemm is None or before is None or not _is_plain(gemm):
            return False
        x, w = before.inputs[0], gemm.inputs[1]
        c = gemm.inputs[2] if len(gemm.inputs) > 2 else None
        sizes, result, inner = dims(x), dims(node.outputs[0]), dims(rows)
        if not sizes or not result or not inner or sizes[:-1] != result[:-1] or sizes[-1] != inner[-1]:
            return False
        columns = dims(w)
        if columns is None or result[-1] != columns[1] or (c is not None and dims(c) != (columns[1],)):
            return False
        if c is None:
            editor.replace(node, "MatMul", [x, w], {}, absorbed=[before, gemm])
            return True
        product = NodeBuilder(gemm, editor, node.outputs[0].dtype).MatMul(x, w, sizes=result)
        editor.replace(node, "Add", [product, c], {}, absorbed=[before, gemm])
        return True


def _is_plain(node: ir.Node) -> bool:
    """Whether a Gemm has neither factors nor transposes."""
    if attribute(node, "transA", 0) or attribute(node, "transB", 0):
        return False
    return bool(attribute(node, "alpha", 1.0) == 1.0 and attribute(node, "beta", 1.0) == 1.0)
