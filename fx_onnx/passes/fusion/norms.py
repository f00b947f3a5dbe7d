"""Fusion of RMS norms that the model computes from elementary operators, and of the residual sum before a norm."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, dims, producer_of, same_shape
from fx_onnx.passes.rewriter import Rewrite
from fx_onnx.passes.rules import Result, rule

__all__ = ["FuseSkipNorm", "canonicalize_reciprocals", "fuse_rms_norm"]


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


class FuseSkipNorm(Rewrite):
    """RMSNormalization(Add(x, y), w) → com.microsoft.SkipSimplifiedLayerNormalization(x, y, w).

    Legal because the operator returns the sum too, as its fourth result. x and y are (batch, length, size), and w is a
    vector that is no result of a node.
    """

    name = "fuse_skip_norm"
    op_types = ("RMSNormalization",)
    since = 23

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Fuses one norm with the sum before it, whose node becomes the operator."""
        added, weight = producer_of(node.inputs[0], "Add"), node.inputs[1]
        if added is None or added.graph is not node.graph or editor.function is not None:
            return False
        total = added.outputs[0]
        if total.dtype != DataType.FLOAT or len(dims(total) or ()) != 3 or attribute(node, "axis", -1) not in (-1, 2):
            return self.declines(
                node, "the sum is not a float32 value of rank 3 that is normalized along its last axis"
            )
        if not all(same_shape(each, total) for each in added.inputs):
            return self.declines(node, "an operand of the sum broadcasts")
        if weight is None or weight.producer() is not None or len(dims(weight) or ()) != 1:
            return self.declines(node, "the weight is no vector, or is computed")
        attributes = {"epsilon": attribute(node, "epsilon", 1e-5)}
        added.resize_outputs(4)
        editor.replace_result(total, added.outputs[3])
        editor.replace_result(node.outputs[0], total)
        for unused in added.outputs[1:3]:
            unused.name = ""
        inputs = [*added.inputs, weight]
        editor.replace(added, "SkipSimplifiedLayerNormalization", inputs, attributes, [node], domain="com.microsoft")
        editor.remove_if_unused(node)
        return True
