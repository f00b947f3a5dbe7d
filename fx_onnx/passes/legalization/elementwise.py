"""Legalization of activations, comparisons and other operators that compute each element alone."""

from __future__ import annotations

import math

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.core.dtypes import is_float
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import dims, has_dtype, producer_of
from fx_onnx.passes.rules import Result, rule

__all__ = [
    "legalize_half_softplus",
    "legalize_less",
    "legalize_log_softmax",
    "legalize_mish",
    "legalize_predicates",
    "legalize_round",
    "legalize_swish",
    "legalize_tanh_gelu",
    "legalize_where",
]

_NO_FRACTION = 2.0**23
"""From here on, float32 has no fractions."""


# ---------------------------------------------------------------- activations


@rule("Mish(x)")
def legalize_mish(f: NodeBuilder, x: Value) -> Result:
    """Mish(x) → x · Tanh(Softplus(x)).

    Legal because this is ONNX's definition of Mish. MNN (3.6.1) has no Mish.
    """
    return f.Mul(x, f.Tanh(f.Softplus(x)))


@rule("Softplus(x)", until=18, where={"x": has_dtype(DataType.FLOAT16)})
def legalize_half_softplus(f: NodeBuilder, x: Value) -> Result:
    """Softplus(x) → Cast(Softplus(Cast(x))), for float16 in float32.

    Legal because both compute the same, rounded to float16. At opset 18, ONNX Runtime replaces Softplus of float16 by
    its definition log(exp(x) + 1), which is infinite from 89 on. In float32 it has a kernel.
    """
    return f.Cast(f.Softplus(f.Cast(x, to=int(DataType.FLOAT))), to=int(DataType.FLOAT16))


@rule("Swish(x, alpha=alpha)", "SwiGLU(x, y, alpha=alpha)", since=25)
def legalize_swish(f: NodeBuilder, x: Value, y: Value | None, alpha: float) -> Result:
    """Swish(x, alpha) → x * Sigmoid(alpha * x); SwiGLU(x, y, alpha) → x * Sigmoid(alpha * x) * y.

    Legal because these are the definitions. ONNX Runtime has no kernel for Swish and SwiGLU. At opset 24 it inlines the
    function body of Swish; at opsets 25 to 28 (measured with ONNX Runtime 1.31.1 and 1.32.0) it does not, and the model
    does not load.
    """
    swish = f.Mul(x, f.Sigmoid(x if alpha == 1.0 else f.Mul(x, alpha)))
    return swish if y is None else f.Mul(swish, y)


@rule(
    "Gelu(~(MatMul(_, _) + bias), approximate='tanh')",
    since=20,
    where={"bias": lambda bias: bias.is_initializer() and len(dims(bias) or ()) == 1},
)
def legalize_tanh_gelu(f: NodeBuilder, node: ir.Node) -> Result:
    """Gelu(y, tanh) → 0.5 * y * (1 + Tanh(√(2/π) * (y + 0.044715 * y³))), where y = MatMul(x, w) + bias.

    Legal because this is the definition of the approximation. onnxruntime.transformers.optimizer (measured with ONNX
    Runtime 1.31.1) fuses a bias and a Gelu into BiasGelu, which computes the exact Gelu, also if the Gelu has
    approximate="tanh". It fuses the elementary operators into FastGelu.
    """
    y = node.inputs[0]
    inner = f.Mul(f.Add(y, f.Mul(f.Pow(y, 3.0), 0.044715)), math.sqrt(2 / math.pi))
    return f.Mul(f.Mul(y, 0.5), f.Add(f.Tanh(inner), 1.0))


@rule("LogSoftmax(x)", since=13)
def legalize_log_softmax(f: NodeBuilder, node: ir.Node, x: Value) -> Result:
    """LogSoftmax(x) → LogSoftmax(x, axis=-1).

    Legal because -1 is the default from opset 13 on. MNN (measured with 3.6.1) crashes at a LogSoftmax without the
    attribute ``axis``.
    """
    return None if "axis" in node.attributes else f.LogSoftmax(x, axis=-1)


@rule("Round(x)")
def legalize_round(f: NodeBuilder, x: Value) -> Result:
    """Round(x) → Where(2^23 > |x|, ((|x| + 2^23) - 2^23) · Sign(x), x), for float32.

    Legal because the sum has no fraction bits, and an addition rounds halves to the even number. MNN (measured with
    3.6.1) rounds halves away from zero.
    """
    if x.dtype != DataType.FLOAT:
        return "the dtype is not float32"
    size = f.Abs(x)
    rounded = f.Mul(f.Sub(f.Add(size, _NO_FRACTION), _NO_FRACTION), f.Sign(x))
    return f.Where(f.Greater(_NO_FRACTION, size), rounded, x)


# ---------------------------------------------------------------- comparisons


@rule("Less(a, b)")
def legalize_less(f: NodeBuilder, a: Value, b: Value) -> Result:
    """Less(a, b) → Greater(b, a), for floats.

    Legal because the two are equal, also for NaN. MNN (measured with 3.6.1, on a CPU) computes a wrong Less of two
    negative float32 numbers: ``-3.0 < -1.0`` is false, ``-1.0 < -2.5`` is true. Its Greater, LessOrEqual and
    GreaterOrEqual are right.
    """
    return f.Greater(b, a) if a.dtype is not None and is_float(a.dtype) else None


@rule("IsNaN(x)", "IsInf(x, detect_negative=below, detect_positive=above)", "Cast(x, to=BOOL)")
def legalize_predicates(f: NodeBuilder, node: ir.Node, x: Value, below: int, above: int) -> Result:
    """IsNaN(x) → Not(x ≥ 0 or 0 ≥ x); IsInf(x) → |x| = ∞; Cast(x) to bool → Not(x = 0).

    Legal because NaN is the only number that is neither at least nor at most 0, and because a Cast to bool is false for
    0 only. An IsInf of one sign compares x itself. MNN (measured with 3.6.1, on a CPU) does not load a model with IsNaN
    or IsInf, and a Cast to bool keeps the number, so that ``And`` multiplies such numbers. Its comparisons are right,
    also for NaN and infinite numbers.
    """
    if node.op_type == "IsNaN":
        return f.Not(f.Or(f.GreaterOrEqual(x, 0.0), f.GreaterOrEqual(0.0, x)))
    if node.op_type == "Cast":
        return None if x.dtype == DataType.BOOL else f.Not(f.Equal(x, 0))
    if not below and not above:
        return "it detects no sign"
    return f.Equal(f.Abs(x) if below and above else x, math.inf if above else -math.inf)


@rule("Where(condition, x, y)")
def legalize_where(f: NodeBuilder, node: ir.Node, condition: Value, x: Value, y: Value) -> Result:
    """Where(c, x, y) → Where(Not(c), y, x) where x has all sizes of the result, else Where(c, x, Expand(y, Shape(x))).

    Legal because both select the same elements. A y of one element, and one with all sizes, stay. MNN (measured with
    3.6.1, on a CPU) computes ``Where(condition, x, y)`` wrongly if the condition and x have the shape of the result and
    y has a smaller one: it reads memory after y. A y of one element is right, and so is a smaller x.
    """
    result, large, small = dims(node.outputs[0]), dims(x), dims(y)
    if _is_single(small) or _is_single(large) or (small is not None and small == result) or _is_expanded_to(y, x):
        return None
    if result is not None and small is not None and large == result:
        return f.Where(f.Not(condition), y, x)
    return f.Where(condition, x, f.Expand(y, f.Shape(x)))


def _is_expanded_to(y: Value, x: Value) -> bool:
    """Returns whether y is the result of ``Expand(..., Shape(x))``."""
    expand = producer_of(y, "Expand")
    shape = None if expand is None else producer_of(expand.inputs[1], "Shape")
    return shape is not None and shape.inputs[0] is x


def _is_single(sizes: tuple[int | str, ...] | None) -> bool:
    return sizes is not None and all(size == 1 for size in sizes)
