"""A Transpose of a Transpose, and a Transpose that changes nothing."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, dims, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["MergeTransposes", "permutation_of"]


class MergeTransposes(Rewrite):
    """Transpose(Transpose(x)) → Transpose(x) with both orders in one; one that keeps the order → x. Always legal."""

    name = "merge_transposes"
    op_types = ("Transpose",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Merges one Transpose with the one before it."""
        order, source = permutation_of(node), node.inputs[0]
        if order is None or source is None:
            return False
        if order == sorted(order):
            return editor.replace_with_value(node, source)
        before = producer_of(source, "Transpose")
        first = permutation_of(before)
        if before is None or first is None or before.inputs[0] is None or len(first) != len(order):
            return False
        both = [first[axis] for axis in order]
        if both == sorted(both) and editor.replace_with_value(node, before.inputs[0]):
            return True
        editor.replace(node, "Transpose", [before.inputs[0]], {"perm": both}, absorbed=[before])
        return True


def permutation_of(node: ir.Node | None) -> list[int] | None:
    """The order of the axes that a Transpose gives; None of another node, or if the default order's rank is unknown."""
    if node is None or node.op_type != "Transpose" or node.domain:
        return None
    order = attribute(node, "perm")
    if order is not None:
        return list(order)
    sizes = dims(node.inputs[0])
    return None if sizes is None else list(range(len(sizes)))[::-1]
