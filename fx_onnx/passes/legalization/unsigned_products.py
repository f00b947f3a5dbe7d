"""Products of uint8 as products of int8, for a runtime that multiplies int8 only: ONNX Runtime's CUDA provider."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeUnsignedProducts"]


class LegalizeUnsignedProducts(Rewrite):
    """MatMulInteger(a, b) → MatMulInteger(a - 128, b) + 128 * ReduceSum(b), for a of uint8 and b of int8.

    Legal because a - 128 fits in int8, and int32 sums wrap around in the same way. The pass belongs to the target
    onnxruntime-cuda.
    """

    name = "legalize_unsigned_products"
    op_types = ("MatMulInteger",)
    since = 13  # earlier sums take the axes as an attribute

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one product."""
        a, b, *zero_points = node.inputs
        if a is None or b is None or a.dtype != DataType.UINT8:
            return False
        if b.dtype != DataType.INT8 or any(each is not None for each in zero_points):
            return self.declines(node, "b is not int8, or there is a zero point")
        f = NodeBuilder(node, editor, DataType.INT32)
        half = f.constant(np.array(128, np.int32))
        shifted = f.Cast(f.Sub(f.Cast(a, to=DataType.INT32), half), to=DataType.INT8)
        sums = f.ReduceSum(f.Cast(b, to=DataType.INT32), f.constant([-2]), keepdims=1)
        editor.replace(node, "Add", [f.MatMulInteger(shifted, b), f.Mul(sums, half)], {})
        return True
