"""Where with a smaller third operand, for a runtime that reads beyond its end.

MNN (measured with 3.6.1, on a CPU) computes ``Where(condition, x, y)`` wrongly if the condition and x have the shape of
the result and y has a smaller one: it reads memory after y. A y of one element is right, and so is a smaller x.
"""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import dims, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeWhere"]


class LegalizeWhere(Rewrite):
    """Where(c, x, y) → Where(Not(c), y, x) where x has all sizes of the result, else Where(c, x, Expand(y, Shape(x))).

    Legal because both select the same elements. A y of one element, and one with all sizes, stay. The pass belongs to
    the target mnn.
    """

    name = "legalize_where"
    op_types = ("Where",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one Where."""
        condition, x, y = node.inputs
        result, small, other = dims(node.outputs[0]), dims(y), dims(x)
        if x is None or y is None or (small is not None and (small == result or _is_single(small))):
            return False
        if (other is not None and _is_single(other)) or _is_expanded_to(y, x):
            return False
        f = NodeBuilder(node, editor, x.dtype)
        if result is not None and small is not None and other == result:
            editor.replace(node, "Where", [f.Not(condition, sizes=dims(condition)), y, x], {})
            return True
        shape = f.Shape(x, sizes=None if other is None else (len(other),))
        editor.replace(node, "Where", [condition, x, f.Expand(y, shape)], {})
        return True


def _is_expanded_to(y: ir.Value, x: ir.Value) -> bool:
    """Returns whether y is the result of ``Expand(..., Shape(x))``."""
    expand = producer_of(y, "Expand")
    shape = None if expand is None else producer_of(expand.inputs[1], "Shape")
    return shape is not None and shape.inputs[0] is x


def _is_single(sizes: tuple[int | str, ...]) -> bool:
    return all(size == 1 for size in sizes)
