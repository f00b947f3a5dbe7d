"""Random numbers from Dropout, the only random operator that ONNX Runtime's CPU provider computes at every opset.

From opset 22 on the provider has no kernel for RandomUniform, RandomNormal and their Like forms. The mask of a Dropout
with ratio 1/2 is a tensor of random bits.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.legalization.cast_insertion import KernelPass
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import constant_number, is_read
from fx_onnx.passes.rewriter import Rewrite
from fx_onnx.passes.rules import Result

__all__ = ["LegalizeRandomDraws"]

# The bits of the significand.
_DIGITS = {DataType.FLOAT16: 11, DataType.BFLOAT16: 8, DataType.FLOAT: 24, DataType.DOUBLE: 53}


class LegalizeRandomDraws(KernelPass, Rewrite):
    """RandomUniform, RandomNormal, RandomUniformLike, RandomNormalLike → random bits of Dropout, or a float32 draw.

    Legal because the numbers have the same distribution. A float16 is drawn as float32 where that has a kernel. Without
    any kernel, a uniform number is the sum of random binary digits, as many as the significand of the dtype has, so
    that it stays below 1 after rounding. A normal number is computed from two uniform ones by the transform of Box and
    Muller (Annals of Mathematical Statistics 29, 1958). Each digit of each number takes one float and one
    boolean of memory during the draw.
    """

    name = "legalize_random_draws"
    op_types: ClassVar[tuple[str, ...]] = ("RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike")

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one draw. A draw with a seed stays, because the seed determines its numbers."""
        dtype = node.outputs[0].dtype
        if dtype not in _DIGITS:
            return False
        if "seed" in node.attributes:
            return self.declines(node, "its seed determines the numbers")
        kernels = self.kernels(node, editor.opset)
        if any(dtype in list(kernel.admitted.values())[-1] for kernel in kernels):
            return False
        f = NodeBuilder(node, editor, DataType.DOUBLE if dtype is DataType.DOUBLE else DataType.FLOAT)
        if "Uniform" in node.op_type:
            unit = _drawn(f) if kernels else _uniform(f, _sizes(f), _DIGITS[dtype])
            if kernels:  # keep only the digits that the dtype has, so that no number is rounded to 1
                unit = f.Mul(f.Floor(f.Mul(unit, 2.0 ** _DIGITS[dtype])), 2.0 ** -_DIGITS[dtype])
            low, high = f.attribute("low", 0.0), f.attribute("high", 1.0)
            result = _scaled(f, unit, high - low, low)
        else:
            normal = _drawn(f) if kernels else _normal(f, _sizes(f))
            result = _scaled(f, normal, f.attribute("scale", 1.0), f.attribute("mean", 0.0))
        editor.replace(node, "Cast", [result], {"to": int(dtype)})
        return True


def _drawn(f: NodeBuilder) -> Value:
    """Draws from [0, 1) or the standard normal distribution, in a dtype that has a kernel."""
    attributes = {"dtype": int(f.dtype)} | ({} if f.node.inputs else {"shape": f.attribute("shape")})
    return f.emit(f.node.op_type, f.node.inputs, attributes)[0]


def _sizes(f: NodeBuilder) -> Value:
    """Returns the sizes of the draw as a 1-D value."""
    if f.node.inputs:
        return f.Shape(f.node.inputs[0])
    return f.editor.constant(list(f.attribute("shape")), f.node)


def _scaled(f: NodeBuilder, x: Value, scale: float, shift: float) -> Value:
    """Returns scale * x + shift."""
    x = x if scale == 1.0 else f.Mul(x, scale)
    return x if shift == 0.0 else f.Add(x, shift)


def _uniform(f: NodeBuilder, sizes: Value, digits: int) -> Value:
    """Draws from [0, 1): the sum of 1/2, 1/4, ..., each included with probability 1/2."""
    dtype = f.dtype.numpy()
    shape = f.Concat(sizes, [digits], axis=0)
    tosses = f.random_mask(f.ConstantOfShape(shape, value=ir.Tensor(np.ones(1, dtype=dtype))))
    places = np.array([2.0**-digit for digit in range(1, digits + 1)], dtype=dtype)
    parts = f.Mul(f.Cast(tosses, to=f.dtype), f.editor.constant(places, f.node))
    # Reshape, because ONNX Runtime's ReduceSum does not remove the axis of an empty tensor
    return f.Reshape(f.ReduceSum(parts, [-1], keepdims=0), sizes, allowzero=1)


def _normal(f: NodeBuilder, sizes: Value) -> Value:
    """Draws from the standard normal distribution: sqrt(-2 log(1 - u)) cos(2 pi v) of two uniform numbers."""
    digits = _DIGITS[f.dtype]
    radius = f.Sqrt(f.Mul(f.Log(f.Sub(1.0, _uniform(f, sizes, digits))), -2.0))
    return f.Mul(radius, f.Cos(f.Mul(_uniform(f, sizes, digits), 2 * math.pi)))


@legalizes("Dropout(x, ratio | None, training | None)", until=11)
def draw_dropped_elements(
    f: NodeBuilder, node: ir.Node, x: Value, ratio: Value | None, training: Value | None
) -> Result:
    """Dropout(x) → Identity(x); Dropout(x, ratio, true) → x / (1 - ratio) where RandomUniform ≥ ratio, else 0.

    Legal because a uniform number in [0, 1) is below the ratio with this probability.
    """
    is_training = 0.0 if training is None else constant_number(training)
    if is_training is None:
        return "its training mode is computed at run time"
    probability = 0.5 if ratio is None else constant_number(ratio)
    if is_training and probability is None:
        return "its ratio is computed at run time"
    result, kept = x, None
    if is_training and probability:
        draw = f.RandomUniformLike(x, dtype=int(DataType.FLOAT))
        kept = f.Not(f.Less(draw, probability))
        result = f.Mul(f.Mul(x, 0.0 if probability == 1 else 1 / (1 - probability)), f.Cast(kept, to=f.dtype))
    if not any(map(is_read, node.outputs[1:])):
        return [result, None][: len(node.outputs)]
    return [result, f.Expand(f.constant(np.array(True)), f.Shape(x)) if kept is None else kept]
