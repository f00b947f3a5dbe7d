"""Fusion of norms and activations that the model computes from elementary operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import dims, same_shape
from fx_onnx.passes.rules import Result, rule

__all__ = ["canonicalize_reciprocals", "fuse_gelu", "fuse_rms_norm", "fuse_skip_norm", "fuse_swiglu", "fuse_swish"]


@rule("x * Reciprocal(y)")
def canonicalize_reciprocals(f: NodeBuilder, x: Value, y: Value) -> Result:
    """x * Reciprocal(y) → x / y. An example is x * rsqrt(y), which each RMS norm contains.

    Legal because a quotient is rounded once and the product with a reciprocal twice, so the result is at least as
    accurate. Applies where no other node reads the Reciprocal. ONNX Runtime fuses an RMS norm only in this form.
    """
    return f.Div(x, y)


def _norm(x: str) -> str:
    """Returns the pattern of x / sqrt(mean(x²) + epsilon); x may be computed twice."""
    mean = f"ReduceMean({x} * {x} | {x} ** 2.0, integers.axes, keepdims=1)"
    return f"{x} / ~Sqrt({mean} + number.epsilon)"


@rule(f"weight * Cast({_norm('~Cast(x, to=wide)')})", f"weight * ({_norm('x')})", since=23)
def fuse_rms_norm(
    f: NodeBuilder, node: ir.Node, x: Value, wide: int | None, weight: Value, axes: list[int], epsilon: float
) -> Result:
    """x / Sqrt(ReduceMean(x * x) + epsilon) * w → RMSNormalization(x, w).

    Legal where the mean is over the last axes and w has their shape. The arithmetic must be float32, which is what the
    operator uses: a float16 or bfloat16 x is cast to float32 first, and back before the product with w.
    """
    sizes = dims(x)
    if not axes or not sizes or sorted(axis % len(sizes) for axis in axes) != list(range(len(sizes)))[-len(axes) :]:
        return "the mean is not over the last axes"
    if dims(weight) != sizes[-len(axes) :]:
        return f"the weight has shape {dims(weight)} and the normalized axes {sizes[-len(axes) :]}"
    if x.dtype != weight.dtype or (wide or x.dtype) != DataType.FLOAT:
        return "x, the weight and the result differ in dtype, or the arithmetic is not float32"
    if not same_shape(x, node.outputs[0]):
        return "the result has another shape than x"
    return f.RMSNormalization(x, weight, axis=-len(axes), epsilon=epsilon)


@rule("RMSNormalization(~(x + y), weight, axis=axis, epsilon=epsilon)", since=23)
def fuse_skip_norm(
    f: NodeBuilder, nodes: Sequence[ir.Node], x: Value, y: Value, weight: Value, axis: int, epsilon: float
) -> Result:
    """RMSNormalization(Add(x, y), w) → com.microsoft.SkipSimplifiedLayerNormalization(x, y, w).

    Legal because the operator returns the sum too, as its fourth result. x and y are (batch, length, size), and w is a
    vector that is no result of a node.
    """
    norm, added = nodes
    total = added.outputs[0]
    if added.graph is not norm.graph or f.editor.function is not None:
        return None
    if total.dtype != DataType.FLOAT or len(dims(total) or ()) != 3 or axis not in (-1, 2):
        return "the sum is not a float32 value of rank 3 that is normalized along its last axis"
    if not (same_shape(x, total) and same_shape(y, total)):
        return "an operand of the sum broadcasts"
    if weight.producer() is not None or len(dims(weight) or ()) != 1:
        return "the weight is no vector, or is computed"
    added.resize_outputs(4)
    f.editor.replace_result(total, added.outputs[3])
    f.editor.replace_result(norm.outputs[0], total)
    for unused in added.outputs[1:3]:
        unused.name = ""
    operator, attributes = "SkipSimplifiedLayerNormalization", {"epsilon": epsilon}
    f.editor.replace(added, operator, [x, y, weight], attributes, [norm], domain="com.microsoft")
    return total


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
    return f.Gelu(x, approximate="tanh" if any(matched.op_type == "Tanh" for matched in nodes) else None)


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
