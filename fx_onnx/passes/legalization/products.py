"""Legalization of products."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.table import DEFAULT, legalizes
from fx_onnx.passes.matchers import has_dtype
from fx_onnx.passes.rules import Result

__all__ = ["legalize_matrix_times_vector", "legalize_saturating_products", "legalize_scales"]


def _is_vector(value: Value) -> bool:
    return value.shape is not None and len(value.shape) == 1


@legalizes("MatMul(a, v)", since=13, targets=(DEFAULT,), where={"v": _is_vector})
def legalize_matrix_times_vector(f: NodeBuilder, a: Value, v: Value) -> Result:
    """MatMul(a, v) → Squeeze(MatMul(a, Unsqueeze(v, -1)), -1).

    Legal because ONNX defines the product with a vector in this way. Applies where ``v`` has rank 1 and ``a`` has a
    higher rank. ONNX Runtime's MatmulTransposeFusion replaces ``MatMul(Transpose(a), v)`` by
    ``FusedMatMul(a, v, transA=1)``, which multiplies the wrong elements if ``v`` is a vector: ``x.t() @ v`` is wrong.
    The Transpose need not be next to the MatMul, because ONNX Runtime moves it there. Measured with ONNX Runtime 1.31.1
    at opsets 18 to 26.
    """
    return None if _is_vector(a) else f.Squeeze(f.MatMul(a, f.Unsqueeze(v, [-1])), [-1])


@legalizes("Attention(query, *rest, scale=scale)", since=23, targets=(DEFAULT,))
def legalize_scales(
    f: NodeBuilder, node: ir.Node, query: Value, rest: Sequence[Value | None], scale: float | None
) -> Result:
    """Attention<scale>(query, …) → Attention<scale=1>(query * scale, …), unless the scale is positive.

    Legal because the scores are the products of the scaled queries. ONNX Runtime (1.31) refuses other scales.
    """
    if scale is None or scale > 0:
        return None
    attributes = {**node.attributes, "scale": 1.0}
    return f.emit("Attention", [f.Mul(query, scale), *rest], attributes, outputs=len(node.outputs))


@legalizes(
    "MatMulInteger(a, b, a_zero | None, b_zero | None)",
    targets=("onnxruntime",),
    where={"a": has_dtype(DataType.UINT8), "b": has_dtype(DataType.INT8)},
)
def legalize_saturating_products(
    f: NodeBuilder, a: Value, b: Value, a_zero: Value | None, b_zero: Value | None
) -> Result:
    """MatMulInteger(a, b) → MatMulInteger(a, b + 128, , 128), for a of uint8 and b of int8.

    Legal because b + 128 fits in uint8, and the zero point takes the shift back. ONNX Runtime's CPU provider (measured
    with 1.31.1) adds pairs of products of uint8 and int8 in 16 bits on x64 processors with AVX2 and without VNNI, where
    they saturate. Products of uint8 are right. ONNX Runtime shifts a constant b when it loads the model.
    """

    def shifted(value: Value) -> Value:
        return f.Cast(f.Add(f.Cast(value, to=DataType.INT32), 128), to=DataType.UINT8)

    return f.MatMulInteger(a, shifted(b), a_zero, np.array(128, np.uint8) if b_zero is None else shifted(b_zero))
