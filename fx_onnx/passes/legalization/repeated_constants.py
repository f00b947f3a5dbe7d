"""Products of a repeated constant, computed before the repetition, for a runtime that loses the repetition.

tract (measured with 0.23.9) computes a product of two constants of which one is repeated a dynamic number of times
without the repetition: the learned queries of a pooling head get a batch of 1.
"""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import dims, initializer_tensor, permutation_of, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeRepeatedConstants"]


class LegalizeRepeatedConstants(Rewrite):
    """MatMul(Tile(c, n), w) → Tile(MatMul(c, w), n), the same for Expand, and for a Transpose before the product.

    Legal for constants c and w where the last axis of c is not repeated, because each row of the product depends on one
    row of c. The pass belongs to the target tract.
    """

    name = "legalize_repeated_constants"
    op_types = ("MatMul", "Transpose")

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one product or one Transpose."""
        repeat = producer_of(node.inputs[0], "Tile", "Expand")
        constant = None if repeat is None else repeat.inputs[0]
        if repeat is None or constant is None or not _is_constant(constant):
            return False
        before, after, count = dims(constant), dims(node.inputs[0]), repeat.inputs[1]
        if count is None or initializer_tensor(count) is not None:
            return self.declines(node, "the number of repetitions is a constant")
        if before is None or after is None or len(before) != len(after):
            return self.declines(node, "the rank is unknown, or it changes")
        f = NodeBuilder(node, editor, constant.dtype)
        if node.op_type == "Transpose":
            order = permutation_of(node) or []
            constant = f.Transpose(constant, perm=order, sizes=[before[axis] for axis in order])
            editor.replace(node, repeat.op_type, [constant, f.Gather(count, f.constant(order))], {})
            return True
        weight = node.inputs[1]
        columns = dims(weight)
        if initializer_tensor(weight) is None or columns is None or len(columns) != 2 or before[-1] != after[-1]:
            return self.declines(node, "the last axis is repeated, or w is no constant matrix")
        product = f.MatMul(constant, weight, sizes=(*before[:-1], columns[1]))
        if repeat.op_type == "Expand":
            outer = f.Slice(count, f.constant([0]), f.constant([-1]))
            count = f.Concat(outer, f.constant([columns[1]]), axis=0)
        editor.replace(node, repeat.op_type, [product, count], {})
        return True


def _is_constant(value: ir.Value) -> bool:
    """Returns whether a value is a weight or a constant, or the Transpose of one."""
    transpose = producer_of(value, "Transpose")
    return initializer_tensor(value if transpose is None else transpose.inputs[0]) is not None
