"""Merging of consecutive Transposes."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, dims, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["MergeTransposes", "permutation_of"]


class MergeTransposes(Rewrite):
    """Transpose(Transpose(x)) → Transpose(x) with the composed permutation; the identity permutation → x.

    Legal because a permutation of a permutation is a permutation.
    """

    name = "merge_transposes"
    op_types = ("Transpose",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Merges one Transpose with the one before it."""
        permutation, source = permutation_of(node), node.inputs[0]
        if permutation is None or source is None:
            return False
        if permutation == sorted(permutation):
            return editor.replace_with_value(node, source)
        before = producer_of(source, "Transpose")
        first = permutation_of(before)
        if before is None or first is None or before.inputs[0] is None or len(first) != len(permutation):
            return False
        composed = [first[axis] for axis in permutation]
        if composed == sorted(composed) and editor.replace_with_value(node, before.inputs[0]):
            return True
        editor.replace(node, "Transpose", [before.inputs[0]], {"perm": composed}, absorbed=[before])
        return True


def permutation_of(node: ir.Node | None) -> list[int] | None:
    """Returns the permutation of a Transpose, also the default one, which reverses the axes.

    None for any other node, and for the default permutation where the rank is unknown.
    """
    if node is None or node.op_type != "Transpose" or node.domain:
        return None
    permutation = attribute(node, "perm")
    if permutation is not None:
        return list(permutation)
    sizes = dims(node.inputs[0])
    return None if sizes is None else list(range(len(sizes)))[::-1]
