"""Legalization of activations and of functions such as Erf."""

from __future__ import annotations

import math

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.onnx_model.dtypes import is_float8, is_integer, is_sub_byte
from fx_onnx.passes.builder import NodeBuilder, undo_float32_rounding
from fx_onnx.passes.legalization.forms import known_rank, swapped_with_last
from fx_onnx.passes.legalization.table import DEFAULT, WIDE, legalizes
from fx_onnx.passes.matchers import dims, has_dtype
from fx_onnx.passes.rules import Result

__all__ = [
    "legalize_half_softplus",
    "legalize_log_softmax",
    "legalize_mish",
    "legalize_quantized_limits",
    "legalize_sigmoid",
    "legalize_swish",
    "legalize_tanh_gelu",
]

# ---------------------------------------------------------------- definitions


@legalizes("Sigmoid(x)", targets=("onnxruntime-cuda",), where={"x": has_dtype(DataType.BFLOAT16)})
def legalize_sigmoid(f: NodeBuilder, x: Value) -> Result:
    """Sigmoid(x) → Cast(Sigmoid(Cast(x))), computed in float32 for bfloat16.

    Legal because float32 has more digits. For x < 0, the CUDA provider (1.31.1) computes 1 - 1 / (1 + exp(x)) in the
    dtype of x, which is 0 below -5.5 in bfloat16.
    """
    return f.Cast(f.Sigmoid(f.Cast(x, to=DataType.FLOAT)), to=x.dtype)


@legalizes("Mish(x)", targets=("mnn", "qnn"))
@legalizes("Mish(x)", lacks=WIDE)
@legalizes("Mish(x)", until=17)
def legalize_mish(f: NodeBuilder, x: Value) -> Result:
    """Mish(x) → x · Tanh(Softplus(x)).

    Legal because this is ONNX's definition of Mish. MNN (3.6.1) has no Mish, and that of QNN (2.7) is wrong by 1e-2
    around 0.
    """
    return f.Mul(x, f.Tanh(f.Softplus(x)))


@legalizes("HardSwish(x)", until=13)
@legalizes("HardSwish(x)", lacks=WIDE)
def expand_hard_swish(f: NodeBuilder, x: Value) -> Result:
    """HardSwish(x) → x * HardSigmoid<alpha=1/6, beta=1/2>(x).

    Legal because this is the definition of HardSwish.
    """
    return f.Mul(x, f.HardSigmoid(x, alpha=1 / 6, beta=0.5))


@legalizes("Relu(x)", until=13, where={"x": lambda x: x.dtype is not None and is_integer(x.dtype)})
@legalizes("Relu(x)", lacks=(*WIDE, DataType.INT64))
def expand_relu(f: NodeBuilder, x: Value) -> Result:
    """Relu(x: integers) → Max(x, 0).

    Legal because this is the definition of Relu.
    """
    return f.Max(x, 0)


@legalizes("Relu(x)", "Clip(x, low | None, high | None)", since=13, targets=(DEFAULT,))
def legalize_quantized_limits(
    f: NodeBuilder, node: ir.Node, x: Value, low: Value | None = None, high: Value | None = None
) -> Result:
    """Relu(x), Clip(x, a, b) → Max(x, 0), Min(Max(x, a), b) before QuantizeLinear to 8-bit floats or 4-bit integers.

    Legal because these are the definitions. ONNX Runtime removes the Relu there, although the dtypes have negative
    numbers, and does not load the Clip (measured with 1.31.1 and 1.32.0).
    """
    readers = (use.node for use in node.outputs[0].uses() if use.node.op_type == "QuantizeLinear")
    dtypes = [reader.outputs[0].dtype or DataType.UNDEFINED for reader in readers]
    if not any(is_float8(dtype) or is_sub_byte(dtype) for dtype in dtypes):
        return None
    result = f.Max(x, 0) if node.op_type == "Relu" else x if low is None else f.Max(x, low)
    return result if high is None else f.Min(result, high)


@legalizes("ThresholdedRelu(x)", until=9)
@legalizes("ThresholdedRelu(x)", lacks=WIDE)
def expand_thresholded_relu(f: NodeBuilder, x: Value) -> Result:
    """ThresholdedRelu<alpha>(x) → Where(x > alpha, x, 0).

    Legal because this is the definition.
    """
    return f.Where(f.Greater(x, float(f.attribute("alpha", 1.0))), x, 0.0)


@legalizes("Celu(x)", until=11)
def celu_of_exp(f: NodeBuilder, x: Value) -> Result:
    """Celu<alpha>(x) → Max(0, x) + Min(0, alpha * (Exp(x / alpha) - 1)).

    Legal because this is the definition of Celu.
    """
    alpha = float(f.attribute("alpha", 1.0))
    negative = f.Mul(f.Sub(f.Exp(f.Div(x, alpha)), 1.0), alpha)
    return f.Add(f.Max(x, 0.0), f.Min(negative, 0.0))


@legalizes("Softmax(x)", "LogSoftmax(x)", "Hardmax(x)", until=12)
def normalize_last_axis(f: NodeBuilder, node: ir.Node, x: Value) -> Result:
    """Softmax<axis>(x), LogSoftmax, Hardmax → Transpose, the operator on the last axis, Transpose.

    Legal because opset 12 normalizes over all axes from ``axis`` on, which are the same for the last axis only.
    """
    rank = known_rank(f)
    axis = f.attribute("axis", -1) % max(rank, 1)
    if axis == rank - 1:
        return f.emit(node.op_type, [x], {"axis": axis})[0]
    if rank == 0:
        return "its input is a scalar"
    swap = swapped_with_last(rank, axis)
    return f.Transpose(f.emit(node.op_type, [f.Transpose(x, perm=swap)], {"axis": rank - 1})[0], perm=swap)


# ---------------------------------------------------------------- runtimes


@legalizes("Softplus(x)", until=18, targets=(DEFAULT,), where={"x": has_dtype(DataType.FLOAT16)})
def legalize_half_softplus(f: NodeBuilder, x: Value) -> Result:
    """Softplus(x) → Cast(Softplus(Cast(x))), for float16 in float32.

    Legal because both compute the same, rounded to float16. At opset 18, ONNX Runtime replaces Softplus of float16 by
    its definition log(exp(x) + 1), which is infinite from 89 on. In float32 it has a kernel.
    """
    return f.Cast(f.Softplus(f.Cast(x, to=int(DataType.FLOAT))), to=int(DataType.FLOAT16))


@legalizes("Swish(x, alpha=alpha)", "SwiGLU(x, y, alpha=alpha)", since=25, targets=(DEFAULT,))
def legalize_swish(f: NodeBuilder, x: Value, y: Value | None, alpha: float) -> Result:
    """Swish(x, alpha) → x * Sigmoid(alpha * x); SwiGLU(x, y, alpha) → x * Sigmoid(alpha * x) * y.

    Legal because these are the definitions. ONNX Runtime has no kernel for Swish and SwiGLU. At opset 24 it inlines the
    function body of Swish; at opsets 25 to 28 (measured with ONNX Runtime 1.31.1 and 1.32.0) it does not, and the model
    does not load.
    """
    swish = f.Mul(x, f.Sigmoid(x if alpha == 1.0 else f.Mul(x, alpha)))
    return swish if y is None else f.Mul(swish, y)


@legalizes(
    "Gelu(~(MatMul(_, _) + bias), approximate='tanh')",
    since=20,
    targets=(DEFAULT,),
    where={"bias": lambda bias: bias.is_initializer() and len(dims(bias) or ()) == 1},
)
def legalize_tanh_gelu(f: NodeBuilder, node: ir.Node) -> Result:
    """Gelu(y, tanh) → y * (0.5 * (1 + Tanh(√(2/π) * (y + 0.044715 * y³)))), where y = MatMul(x, w) + bias.

    Legal because this is the definition of the approximation. onnxruntime.transformers.optimizer (measured with ONNX
    Runtime 1.31.1) fuses a bias and a Gelu into BiasGelu, which computes the exact Gelu, also if the Gelu has
    approximate="tanh". It fuses the elementary operators into FastGelu, and so does onnxscript, which asks for the
    operands in this order.
    """
    y = node.inputs[0]
    inner = f.Mul(math.sqrt(2 / math.pi), f.Add(y, f.Mul(0.044715, f.Pow(y, 3.0))))
    return f.Mul(y, f.Mul(0.5, f.Add(f.Tanh(inner), 1.0)))


@legalizes("LogSoftmax(x)", since=13, targets=("mnn",))
def legalize_log_softmax(f: NodeBuilder, node: ir.Node, x: Value) -> Result:
    """LogSoftmax(x) → LogSoftmax(x, axis=-1).

    Legal because -1 is the default from opset 13 on. MNN (measured with 3.6.1) crashes at a LogSoftmax without the
    attribute ``axis``.
    """
    return None if "axis" in node.attributes else f.LogSoftmax(x, axis=-1)


# ---------------------------------------------------------------- float64


@legalizes("LeakyRelu(x)", lacks=WIDE)
def expand_leaky_relu(f: NodeBuilder, x: Value) -> Result:
    """LeakyRelu(x) → x, or alpha x below zero."""
    return f.Where(f.Less(x, 0.0), f.Mul(x, float(f.attribute("alpha", 0.01))), x)


@legalizes("PRelu(x, slope)", lacks=WIDE)
def expand_prelu(f: NodeBuilder, x: Value, slope: Value) -> Result:
    """PRelu(x) → x, or slope x below zero."""
    return f.Where(f.Less(x, 0.0), f.Mul(x, slope), x)


def _expm1(f: NodeBuilder, x: Value) -> Value:
    """exp(x) - 1 = 2 t / (1 - t) with t = tanh(x / 2), which has no cancellation for x < 0."""
    t = f.Tanh(f.Mul(x, 0.5))
    return f.Div(f.Mul(t, 2.0), f.Sub(1.0, t))


@legalizes("Elu(x)", lacks=WIDE)
def expand_elu(f: NodeBuilder, x: Value) -> Result:
    """Elu(x) → x, or alpha (exp(x) - 1) below zero."""
    below = f.Mul(_expm1(f, f.Min(x, 0.0)), float(f.attribute("alpha", 1.0)))
    return f.Where(f.Less(x, 0.0), below, x)


@legalizes("Celu(x)", lacks=WIDE)
def expand_celu(f: NodeBuilder, x: Value) -> Result:
    """Celu(x) → x, or alpha (exp(x / alpha) - 1) below zero."""
    alpha = float(f.attribute("alpha", 1.0))
    return f.Where(f.Less(x, 0.0), f.Mul(_expm1(f, f.Min(f.Div(x, alpha), 0.0)), alpha), x)


@legalizes("Selu(x)", lacks=WIDE)
def expand_selu(f: NodeBuilder, x: Value) -> Result:
    """Selu(x) → gamma x, or gamma alpha (exp(x) - 1) below zero.

    The constants are those of the definition, because the attributes are float32.
    """
    alpha = 1.6732632423543772848170429916717
    gamma = 1.0507009873554804934193349852946
    return f.Mul(f.Where(f.Less(x, 0.0), f.Mul(_expm1(f, f.Min(x, 0.0)), alpha), x), gamma)


@legalizes("Softplus(x)", lacks=WIDE)
def expand_softplus(f: NodeBuilder, x: Value) -> Result:
    """Softplus(x) → max(x, 0) + log(1 + exp(-|x|))."""
    return f.Add(f.Max(x, 0.0), f.log1p(f.Exp(f.Neg(f.Abs(x)))))


@legalizes("Softsign(x)", lacks=WIDE)
def expand_softsign(f: NodeBuilder, x: Value) -> Result:
    """Softsign(x) → x / (1 + |x|)."""
    return f.Div(x, f.Add(f.Abs(x), 1.0))


@legalizes("HardSigmoid(x)", lacks=WIDE)
def expand_hard_sigmoid(f: NodeBuilder, x: Value) -> Result:
    """HardSigmoid(x) → alpha x + beta, limited to [0, 1]. An alpha of 1/6 rounded to float32 becomes 1/6 again."""
    alpha, beta = (
        undo_float32_rounding(f.attribute(name, default)) for name, default in (("alpha", 0.2), ("beta", 0.5))
    )
    return f.Max(f.Min(f.Add(f.Mul(x, alpha), beta), 1.0), 0.0)


@legalizes("Gelu(x)", lacks=WIDE)
def expand_gelu(f: NodeBuilder, x: Value) -> Result:
    """Gelu(x) → x times the cumulative normal distribution, computed by erf or approximated by tanh."""
    if f.attribute("approximate", "none") in ("tanh", b"tanh"):
        cubic = f.Add(x, f.Mul(f.Mul(f.Mul(x, x), x), 0.044715))
        half = f.Tanh(f.Mul(cubic, math.sqrt(2 / math.pi)))
    else:
        half = f.Erf(f.Mul(x, math.sqrt(0.5)))
    return f.Mul(f.Mul(x, 0.5), f.Add(half, 1.0))


# Polynomials for erf, fitted at Chebyshev points. _ERF approximates erf(x) / x for |x| < 2 in powers of x² / 2 - 1,
# with an error of 1e-15. _ERFC approximates x exp(x²) erfc(x) for 2 ≤ |x| ≤ 6 in powers of 9 / x² - 1.25, with an
# error of 1e-14.
_ERF = (
    0.6749332360396554, -0.261111860931244, 0.11947913860983116, -0.0486627774491756, 0.01712834457228541,
    -0.005234875836174289, 0.0014050914198729823, -0.00033514353212698336, 7.180102302822527e-05,
    -1.3946281052537593e-05, 2.4757716191350494e-06, -4.0449301578496896e-07, 6.123102620206284e-08,
    -8.636538753076724e-09, 1.113071029648799e-09, -1.2932464864993056e-10, 2.210534362086327e-11,
    -4.365574568510057e-12,
)  # fmt: skip
_ERFC = (
    0.5312118330102713, -0.0225328901081682, 0.002433720338097294, -0.0003826826216971859, 7.5062246279065e-05,
    -1.7114527246403742e-05, 4.360432010113302e-06, -1.211172521357145e-06, 3.6065965156265795e-07,
    -1.1338019486658567e-07, 3.743904107714455e-08, -1.3614986837278748e-08, 4.9999334635356944e-09,
    -1.1113649011855383e-09, 3.454719882940157e-10, -5.549281268235983e-10, 2.4136414317961483e-10,
)  # fmt: skip


@legalizes("Cosh(x)", "Sinh(x)", until=8)
def hyperbolic_functions_of_exp(f: NodeBuilder, node: ir.Node, x: Value) -> Result:
    """Cosh(x) → (Exp(x) + Exp(-x)) / 2, Sinh(x) → Tanh(x) * (Exp(x) + Exp(-x)) / 2.

    Legal because these are the definitions; a product with Tanh is accurate near 0 too.
    """
    cosh = f.Mul(f.Add(f.Exp(x), f.Exp(f.Neg(x))), 0.5)
    return cosh if node.op_type == "Cosh" else f.Mul(f.Tanh(x), cosh)


@legalizes("Erf(x)", lacks=WIDE)
def expand_erf(f: NodeBuilder, x: Value) -> Result:
    """Erf(x) → a polynomial in x² below 2, another in 1 / x² up to 6, and 1 beyond."""
    a = f.Min(f.Abs(x), 6.0)
    low = f.Min(a, 2.0)
    inner = f.Mul(low, f.polynomial(f.Sub(f.Mul(f.Mul(low, low), 0.5), 1.0), _ERF))
    high = f.Max(a, 2.0)
    square = f.Mul(high, high)
    tail = f.Mul(f.polynomial(f.Sub(f.Div(9.0, square), 1.25), _ERFC), f.Div(f.Exp(f.Neg(square)), high))
    return f.odd(x, f.Where(f.Less(a, 2.0), inner, f.Sub(1.0, tail)))


@legalizes("Tan(x)", lacks=WIDE)
def expand_tan(f: NodeBuilder, x: Value) -> Result:
    """Tan(x) → sin / cos."""
    return f.Div(f.Sin(x), f.Cos(x))


@legalizes("Sinh(x)", lacks=WIDE)
def expand_sinh(f: NodeBuilder, x: Value) -> Result:
    """Sinh(x) → (exp(x) - exp(-x)) / 2; near zero 2 t / (1 - t²) with t = tanh(x / 2)."""
    half = f.Mul(f.Exp(f.Mul(f.Abs(x), 0.5)), math.sqrt(0.5))
    large = f.Sub(f.Mul(half, half), f.Div(f.Exp(f.Neg(f.Abs(x))), 2.0))
    t = f.Tanh(f.Mul(x, 0.5))
    small = f.Div(f.Mul(t, 2.0), f.Sub(1.0, f.Mul(t, t)))
    return f.Where(f.Less(f.Abs(x), 1.0), small, f.odd(x, large))


@legalizes("Cosh(x)", lacks=WIDE)
def expand_cosh(f: NodeBuilder, x: Value) -> Result:
    """Cosh(x) → (exp(x) + exp(-x)) / 2."""
    half = f.Mul(f.Exp(f.Mul(f.Abs(x), 0.5)), math.sqrt(0.5))
    return f.Add(f.Mul(half, half), f.Div(f.Exp(f.Neg(f.Abs(x))), 2.0))


@legalizes("Asinh(x)", lacks=WIDE)
def expand_asinh(f: NodeBuilder, x: Value) -> Result:
    """Asinh(x) → log(|x| + sqrt(x² + 1)) by log1p, with the sign of x; log(2 |x|) where x² would overflow."""
    a = f.Abs(x)
    b = f.Min(a, 1e9)
    square = f.Mul(b, b)
    near = f.log1p(f.Add(b, f.Div(square, f.Add(f.Sqrt(f.Add(square, 1.0)), 1.0))))
    return f.odd(x, f.Where(f.Greater(a, 1e9), f.Add(f.Log(a), math.log(2)), near))


@legalizes("Acosh(x)", lacks=WIDE)
def expand_acosh(f: NodeBuilder, x: Value) -> Result:
    """Acosh(x) → log(x + sqrt(x² - 1)) by log1p; log(2 x) where x² would overflow."""
    t = f.Sub(f.Min(x, 1e9), 1.0)
    near = f.log1p(f.Add(t, f.Sqrt(f.Mul(t, f.Add(t, 2.0)))))
    return f.Where(f.Greater(x, 1e9), f.Add(f.Log(x), math.log(2)), near)


@legalizes("Atanh(x)", lacks=WIDE)
def expand_atanh(f: NodeBuilder, x: Value) -> Result:
    """Atanh(x) → log(1 + 2 x / (1 - x)) / 2."""
    a = f.Abs(x)
    return f.odd(x, f.Mul(f.log1p(f.Div(f.Mul(a, 2.0), f.Sub(1.0, a))), 0.5))


@legalizes("Atan(x)", lacks=WIDE)
def expand_atan(f: NodeBuilder, x: Value) -> Result:
    """Atan(x) → takes the reciprocal above 1, halves the angle twice, then sums the series up to the 25th power."""
    a = f.Abs(x)
    steep = f.Greater(a, 1.0)
    z = f.Where(steep, f.Div(1.0, a), a)
    for _ in range(2):
        z = f.Div(z, f.Add(f.Sqrt(f.Add(f.Mul(z, z), 1.0)), 1.0))
    series = f.polynomial(f.Mul(z, z), [(-1) ** n / (2 * n + 1) for n in range(13)])
    angle = f.Mul(f.Mul(z, 4.0), series)
    return f.odd(x, f.Where(steep, f.Sub(math.pi / 2, angle), angle))


@legalizes("Asin(x)", lacks=WIDE)
def expand_asin(f: NodeBuilder, x: Value) -> Result:
    """Asin(x) → atan(x / sqrt(1 - x²))."""
    return f.Atan(f.Div(x, f.Sqrt(f.Mul(f.Sub(1.0, x), f.Add(x, 1.0)))))


@legalizes("Acos(x)", lacks=WIDE)
def expand_acos(f: NodeBuilder, x: Value) -> Result:
    """Acos(x) → 2 atan(sqrt((1 - x) / (1 + x)))."""
    return f.Mul(f.Atan(f.Sqrt(f.Div(f.Sub(1.0, x), f.Add(x, 1.0)))), 2.0)
