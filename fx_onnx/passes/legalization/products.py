"""Legalization of products and of quantization."""

from __future__ import annotations

from onnx_ir import Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.table import DEFAULT, legalizes
from fx_onnx.passes.rules import Result

__all__ = ["legalize_matrix_times_vector"]


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
