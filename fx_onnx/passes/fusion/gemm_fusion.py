"""MatMul and Add of matrices as one Gemm, which transposes its operands by itself."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.passes.cleanup.transposes import permutation_of
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, commuted_inputs, dims, producer_of, single_use_producer
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FuseGemm"]

_TYPES = (DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16)


class FuseGemm(Rewrite):
    """MatMul(a, b) + c → Gemm(a, b, c); Transposes of a and b → transA and transB.

    Legal where a and b have two dims and c has at most two, of which each is 1 or that of the result, so that the sum
    has the shape of the product; and no other node reads the product. A MatMul of two matrices alone becomes a Gemm
    only where that saves a Transpose. Gemm takes floats.
    """

    name = "fuse_gemm"
    op_types = ("Add", "MatMul", "Gemm")

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Fuses at one of the three nodes."""
        if node.outputs[0].dtype not in _TYPES:
            return False
        if node.op_type == "Add":
            return _add(node, editor)
        if node.op_type == "MatMul" and not (_is_matrix(node.inputs[0]) and _is_matrix(node.inputs[1])):
            return False
        return _transposed(node, editor)


def _is_matrix(value: ir.Value | None) -> bool:
    return value is not None and value.shape is not None and len(value.shape) == 2


def _add(node: ir.Node, editor: Editor) -> bool:
    for product, addend in commuted_inputs(node):
        before = single_use_producer(product, "MatMul", "Gemm")
        if before is None or addend is None:
            continue
        if before.op_type == "Gemm":
            fits = len(before.inputs) == 2 and attribute(before, "beta", 1.0) == 1.0
        else:
            fits = _is_matrix(before.inputs[0]) and _is_matrix(before.inputs[1])
        if fits and _broadcasts(addend, before, node.outputs[0]):
            editor.replace(node, "Gemm", [*before.inputs[:2], addend], before.attributes, absorbed=[before])
            return True
    return False


def _broadcasts(addend: ir.Value, product: ir.Node, result: ir.Value) -> bool:
    """Whether the addend broadcasts to the product's shape without widening it."""
    sizes, a, b = dims(addend), dims(product.inputs[0]), dims(product.inputs[1])
    if sizes is None or a is None or b is None or len(sizes) > 2:
        return False
    target = (a[attribute(product, "transA", 0)], b[1 - attribute(product, "transB", 0)])
    return target == dims(result) and all(
        size in (1, whole) for size, whole in zip(sizes[::-1], target[::-1], strict=False)
    )


def _transposed(node: ir.Node, editor: Editor) -> bool:
    """Transposes of the operands become attributes."""
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
