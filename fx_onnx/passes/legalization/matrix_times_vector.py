"""Products of a matrix and a vector, in a form that ONNX Runtime does not compute wrongly.

ONNX Runtime's MatmulTransposeFusion replaces ``MatMul(Transpose(a), v)`` by ``FusedMatMul(a, v, transA=1)``, which
multiplies the wrong elements if ``v`` is a vector: ``x.t() @ v`` is wrong. The Transpose need not be next to the
MatMul, because ONNX Runtime moves it there. Measured with ONNX Runtime 1.31.1 at opsets 18 to 26.
"""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import dims
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeMatrixTimesVector"]


class LegalizeMatrixTimesVector(Rewrite):
    """MatMul(a, v) → Squeeze(MatMul(a, Unsqueeze(v, -1)), -1).

    Legal because ONNX defines the product with a vector in this way. Applies where ``v`` has rank 1 and ``a`` has a
    higher rank.
    """

    name = "legalize_matrix_times_vector"
    op_types = ("MatMul",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one product with a vector."""
        if [_rank(value) == 1 for value in node.inputs] != [False, True]:
            return False
        f = NodeBuilder(node, editor, node.outputs[0].dtype)
        size, rows = dims(node.inputs[1]), dims(node.outputs[0])
        column = f.Unsqueeze(node.inputs[1], f.constant([-1]), sizes=size and [*size, 1])
        product = f.MatMul(node.inputs[0], column, sizes=rows and [*rows, 1])
        editor.replace(node, "Squeeze", [product, f.constant([-1])], {})
        return True


def _rank(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else len(value.shape)
