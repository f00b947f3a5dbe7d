"""Fusion of MatMul, Add and Transpose of matrices into Gemm."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, commuted_inputs, dims, is_absorbable, permutation_of, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FuseGemm"]

_TYPES = (DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16)


class FuseGemm(Rewrite):
    """MatMul(a, b) + c → Gemm(a, b, c); MatMul(aᵀ, bᵀ) → Gemm(a, b, transA=1, transB=1).

    Legal for floats where a and b are matrices and c broadcasts to the shape of the product without widening it. No
    other node may read the product. A MatMul without an addend becomes a Gemm only where that saves a Transpose.
    """

    name = "fuse_gemm"
    op_types = ("Add", "MatMul", "Gemm")

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Fuses an addend at the Add, or Transposes at the MatMul or Gemm."""
        if node.outputs[0].dtype not in _TYPES:
            return False
        if node.op_type == "Add":
            return self._fuse_add(node, editor)
        if node.op_type == "MatMul" and not (_is_matrix(node.inputs[0]) and _is_matrix(node.inputs[1])):
            return False
        return _fuse_transposes(node, editor)

    def _fuse_add(self, node: ir.Node, editor: Editor) -> bool:
        for product, addend in commuted_inputs(node):
            before = producer_of(product, "MatMul", "Gemm")
            if before is None or product is None or addend is None:
                continue
            if before.op_type == "Gemm":
                is_legal = len(before.inputs) == 2 and attribute(before, "beta", 1.0) == 1.0
            else:
                is_legal = _is_matrix(before.inputs[0]) and _is_matrix(before.inputs[1])
            if not is_legal:
                continue
            if not is_absorbable(product):
                self.declines(node, "another node reads the %s", before.op_type)
            elif not _broadcasts(addend, before, node.outputs[0]):
                self.declines(node, "the addend, of shape %s, would widen the product", addend.shape)
            else:
                editor.replace(node, "Gemm", [*before.inputs[:2], addend], before.attributes, absorbed=[before])
                return True
        return False


def _is_matrix(value: ir.Value | None) -> bool:
    return value is not None and value.shape is not None and len(value.shape) == 2


def _broadcasts(addend: ir.Value, product: ir.Node, result: ir.Value) -> bool:
    """Returns whether the addend broadcasts to the product's shape without widening it."""
    sizes, a, b = dims(addend), dims(product.inputs[0]), dims(product.inputs[1])
    if sizes is None or a is None or b is None or len(sizes) > 2:
        return False
    target = (a[attribute(product, "transA", 0)], b[1 - attribute(product, "transB", 0)])
    return target == dims(result) and all(
        size in (1, whole) for size, whole in zip(sizes[::-1], target[::-1], strict=False)
    )


def _fuse_transposes(node: ir.Node, editor: Editor) -> bool:
    """Replaces Transposes of the operands by the attributes transA and transB."""
    operands, attributes, absorbed = list(node.inputs), dict(node.attributes), []
    for index, name in enumerate(("transA", "transB")):
        before = producer_of(operands[index], "Transpose")
        if before is not None and permutation_of(before) == [1, 0]:
            operands[index] = before.inputs[0]
            attributes[name] = 1 - attribute(node, name, 0)
            absorbed.append(before)
    if not absorbed:
        return False
    editor.replace(node, "Gemm", operands, attributes, absorbed)
    return True
