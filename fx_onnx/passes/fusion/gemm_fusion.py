"""Fusion of MatMul, Add and Transpose of matrices into Gemm, and of a Gemm between two Reshapes into MatMul."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import attribute, dims, permutation_of
from fx_onnx.passes.rules import Result, rule

__all__ = ["batch_gemm", "fuse_gemm"]

_TYPES = (DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16)


@rule("Reshape(Gemm(~Reshape(x, _), w, c | None, alpha=1.0, beta=1.0, transA=0, transB=0), _)")
def batch_gemm(f: NodeBuilder, node: ir.Node, nodes: Sequence[ir.Node], x: Value, w: Value, c: Value | None) -> Result:
    """Reshape(Gemm(Reshape(x), w, c)) → Add(MatMul(x, w), c), without the Add where there is no c.

    The Conv1D layer of GPT-2 in transformers has this form. Legal where the Reshapes only flatten and unflatten the
    leading axes, c has one axis, and the Gemm neither scales nor transposes. No other node may read the Gemm.
    """
    sizes, result, rows, columns = map(dims, (x, node.outputs[0], nodes[2].outputs[0], w))
    if not sizes or not result or not rows or sizes[:-1] != result[:-1] or sizes[-1] != rows[-1]:
        return "the Reshapes change more than the leading axes"
    if columns is None or result[-1] != columns[1] or (c is not None and dims(c) != (columns[1],)):
        return "the addend is not one number for each column"
    product = f.MatMul(x, w)
    return product if c is None else f.Add(product, c)


@rule(
    "MatMul(_, _) + c",
    "Gemm(_, _, beta=1.0) + c",
    "(MatMul | Gemm)(~Transpose(_), ...)",
    "(MatMul | Gemm)(_, ~Transpose(_), ...)",
)
def fuse_gemm(f: NodeBuilder, node: ir.Node, nodes: Sequence[ir.Node], c: Value | None) -> Result:
    """MatMul(a, b) + c → Gemm(a, b, c); MatMul(aᵀ, bᵀ) → Gemm(a, b, transA=1, transB=1).

    Legal for floats where a and b are matrices and c broadcasts to the shape of the product without widening it. No
    other node may read the product. A MatMul without an addend becomes a Gemm only where that saves a Transpose.
    """
    product = node if c is None else nodes[1]
    if node.outputs[0].dtype not in _TYPES or not (_is_matrix(product.inputs[0]) and _is_matrix(product.inputs[1])):
        return None
    operands, attributes = list(product.inputs), dict(product.attributes)
    if c is not None:
        if not _broadcasts(c, product, node.outputs[0]):
            return f"the addend, of shape {c.shape}, would widen the product"
        return f.Gemm(*operands, c, **attributes)
    transpose = nodes[1]
    if permutation_of(transpose) != [1, 0]:
        return None
    for index, name in enumerate(("transA", "transB")):
        if operands[index] is transpose.outputs[0]:
            operands[index] = transpose.inputs[0]
            attributes[name] = 1 - attribute(node, name, 0)
    return f.Gemm(*operands, **attributes)


def _is_matrix(value: Value | None) -> bool:
    return value is not None and value.shape is not None and len(value.shape) == 2


def _broadcasts(addend: Value, product: ir.Node, result: Value) -> bool:
    """Returns whether the addend broadcasts to the product's shape without widening it."""
    sizes, a, b = dims(addend), dims(product.inputs[0]), dims(product.inputs[1])
    if sizes is None or a is None or b is None or len(sizes) > 2:
        return False
    target = (a[attribute(product, "transA", 0)], b[1 - attribute(product, "transB", 0)])
    return target == dims(result) and all(
        size in (1, whole) for size, whole in zip(sizes[::-1], target[::-1], strict=False)
    )
