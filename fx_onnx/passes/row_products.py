"""A Gemm between two Reshapes as what it was before: a product of rows."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.rewrite import Editor, Rewrite, attribute, dims, single_use

__all__ = ["UnfoldGemm"]


class UnfoldGemm(Rewrite):
    """Reshape(Gemm(Reshape(x), w, c)) → Add(MatMul(x, w), c), without the Add where there is no c.

    PyTorch's Conv1D of GPT-2 writes it so. Legal where the Reshapes only join and part the leading axes again, no other
    node reads what is between them, c has one axis, and the Gemm neither scales nor transposes.
    """

    name = "unfold_gemm"
    op_types = ("Reshape",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites from the second Reshape backwards."""
        product = node.inputs[0]
        gemm = product.producer() if product is not None else None
        if product is None or gemm is None or not _is_plain(gemm) or not single_use(product):
            return False
        rows = gemm.inputs[0]
        before = rows.producer() if rows is not None else None
        if rows is None or before is None or before.op_type != "Reshape" or before.domain:
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
            editor.change(node, "MatMul", [x, w], {}, absorbed=[before, gemm])
            return True
        name = editor.unique(f"{node.outputs[0].name}.MatMul")
        made = ir.Node("", "MatMul", [x, w], outputs=[ir.Value(name=name)], name=name)
        made.outputs[0].shape, made.outputs[0].type = node.outputs[0].shape, node.outputs[0].type
        made.metadata_props.update(gemm.metadata_props)
        editor.insert(made, node)
        editor.change(node, "Add", [made.outputs[0], c], {}, absorbed=[before, gemm])
        return True


def _is_plain(node: ir.Node) -> bool:
    """Whether it is a Gemm with neither factors nor transposes."""
    if node.op_type != "Gemm" or node.domain or attribute(node, "transA", 0) or attribute(node, "transB", 0):
        return False
    return bool(attribute(node, "alpha", 1.0) == 1.0 and attribute(node, "beta", 1.0) == 1.0)
