"""Fusion of activations that the model computes from elementary operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import same_shape
from fx_onnx.passes.rules import Result, rule

__all__ = ["fuse_gelu", "fuse_swiglu", "fuse_swish"]


@rule(
    "0.5 * x * (1 + Erf(x / 1.4142135623730951))",
    "0.5 * x * (1 + Tanh(0.7978845608028654 * (x + (0.044715 * x ** 3 | 0.044715 * x * x * x))))",
    since=20,
)
def fuse_gelu(f: NodeBuilder, node: ir.Node, x: Value, nodes: Sequence[ir.Node]) -> Result:
    """0.5 * x * (1 + Tanh(√(2/π) * (x + 0.044715 * x³))) → Gelu(x, tanh); x * 0.5 * (1 + Erf(x / √2)) → Gelu(x).

    Legal where the constants equal these numbers within float32's precision.
    """
    if not same_shape(x, node.outputs[0]) or x.dtype != node.outputs[0].dtype:
        return "the result has another shape or dtype than x"
    return f.Gelu(x, approximate="tanh" if any(each.op_type == "Tanh" for each in nodes) else None)


@rule("x * Sigmoid(number.alpha * x)", since=24)
def fuse_swish(f: NodeBuilder, node: ir.Node, x: Value, alpha: float) -> Result:
    """x * Sigmoid(alpha * x) → Swish(x, alpha), where alpha is a constant or 1.

    Legal where a float32 represents alpha exactly, because the attribute is a float32.
    """
    if x.dtype == DataType.DOUBLE and float(np.float32(alpha)) != alpha:
        return f"alpha = {alpha} is not exact as a float32 attribute"
    return f.Swish(x, alpha=alpha) if same_shape(x, node.outputs[0]) else "the result has another shape than x"


@rule("Swish(x, alpha=alpha) * y", since=28)
def fuse_swiglu(f: NodeBuilder, x: Value, y: Value, alpha: float) -> Result:
    """Swish(x, alpha) * y → SwiGLU(x, y, alpha).

    Legal where x and y have equal shapes, because SwiGLU does not broadcast.
    """
    return f.SwiGLU(x, y, alpha=alpha) if same_shape(x, y) else "the shapes of the factors differ"
