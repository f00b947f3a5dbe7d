"""Elimination of Expands before nodes that broadcast."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.core.size_rules import broadcast_shapes
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import dims, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["EliminateExpands"]


class EliminateExpands(Rewrite):
    """f(Expand(x), y) → f(x, y), where f is elementwise with broadcasting, or MatMul.

    Legal where the operands broadcast to the same shape without the Expand. For MatMul only batch axes broadcast; for
    PRelu only the slope does.
    """

    name = "eliminate_expands"
    op_types = ("Add", "Sub", "Mul", "Div", "Pow", "Mod", "And", "Or", "Xor", "Equal", "Greater", "GreaterOrEqual",
                "Less", "LessOrEqual", "Where", "MatMul", "Max", "Min", "Sum", "PRelu")  # fmt: skip

    producers = frozenset({"Expand"})

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Removes the Expands before one node."""
        inputs = list(node.inputs)
        absorbed: list[ir.Node] = []
        for index, value in enumerate(inputs):
            before = producer_of(value, "Expand")
            if before is None:
                continue
            shorter = [*inputs[:index], before.inputs[0], *inputs[index + 1 :]]
            if _same_result(node, inputs, shorter):
                inputs = shorter
                absorbed.append(before)
            else:
                self.declines(node, "the result may have another shape without the Expand of operand %s", index)
        if not absorbed:
            return False
        editor.replace(node, node.op_type, inputs, absorbed=absorbed)
        return True


def _same_result(node: ir.Node, inputs: list[ir.Value | None], shorter: list[ir.Value | None]) -> bool:
    skipped = 2 if node.op_type == "MatMul" else 0
    before, after = ([dims(value) for value in values] for values in (inputs, shorter))
    if any(sizes is None or len(sizes) < skipped for sizes in (*before, *after)):
        return False
    if node.op_type == "PRelu" and (after[0] != before[0]):
        return False
    cut = -skipped or None
    if skipped and [x[cut:] for x in before if x] != [x[cut:] for x in after if x]:
        return False
    old = broadcast_shapes(*(x[:cut] for x in before if x is not None))
    return old is not None and old == broadcast_shapes(*(x[:cut] for x in after if x is not None))
