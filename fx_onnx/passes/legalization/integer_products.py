"""MatMulInteger as products of floats, for a runtime that computes it wrongly.

MNN (measured with 3.6.1, on a CPU) multiplies matrices of floats only.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import dims
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeIntegerProducts"]

_EXACT = 2**24 // (255 * 255)
"""The longest row whose products of 8-bit numbers have a sum of at most 2^24: float32 has all integers up to it."""


class LegalizeIntegerProducts(Rewrite):
    """MatMulInteger(a, b) → Cast(MatMul(Cast(a), Cast(b))) to int32; longer rows are the int32 sum of such parts.

    Legal because the float32 sums of at most 258 products of 8-bit numbers are exact. The pass belongs to the target
    mnn.
    """

    name = "legalize_integer_products"
    op_types = ("MatMulInteger",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one product."""
        a, b, *zero_points = node.inputs
        rows, columns = dims(a), dims(b)
        if a is None or b is None or any(zero_points):
            return self.declines(node, "there is a zero point")
        if rows is None or columns is None or len(columns) < 2 or not isinstance(columns[-2], int):
            return self.declines(node, "the length of a row is dynamic")
        f, length, sizes = NodeBuilder(node, editor, DataType.FLOAT), columns[-2], dims(node.outputs[0])
        first, second = f.Cast(a, to=DataType.FLOAT, sizes=rows), f.Cast(b, to=DataType.FLOAT, sizes=columns)
        total: Value | None = None
        for start in range(0, length, _EXACT):
            end = min(start + _EXACT, length)
            operands = (_part(f, first, -1, start, end), _part(f, second, -2, start, end)) if length > _EXACT else None
            product = f.MatMul(*(operands or (first, second)), sizes=sizes)
            if end == length and total is None:
                editor.replace(node, "Cast", [product], {"to": DataType.INT32})
                return True
            part = f.Cast(product, to=DataType.INT32, sizes=sizes)
            if end == length:
                editor.replace(node, "Add", [total, part], {})
            else:
                total = part if total is None else f.Add(total, part, sizes=sizes)
        return True


def _part(f: NodeBuilder, x: Value, axis: int, start: int, end: int) -> Value:
    """Returns the elements from ``start`` to ``end`` of an axis that is counted from the last one."""
    sizes = list(dims(x) or ())
    sizes[axis] = end - start
    return f.Slice(x, f.constant([start]), f.constant([end]), f.constant([axis % len(sizes)]), sizes=sizes)
