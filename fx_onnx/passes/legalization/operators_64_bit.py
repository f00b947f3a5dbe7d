"""Expansion of float64 and int64 operators that have no kernel in ONNX Runtime, by default in its CPU provider.

Casts (``insert_casts``) cannot help here: no dtype is wider than 64 bits, and 32 bits would change the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder, undo_float32_rounding
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.legalization import conv_and_pool_64_bit as conv_and_pool
from fx_onnx.passes.legalization._kernel_pass import KernelPass
from fx_onnx.passes.legalization.resize_64_bit import resize
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["EXPANSIONS", "Legalize64Bit"]

_OF_INTEGERS = frozenset({"Relu", "DepthToSpace", "SpaceToDepth"})
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


class Legalize64Bit(KernelPass, Rewrite):
    """Elu, Erf, Conv, Resize and others of float64 → operators with float64 kernels; Relu of int64 → Max.

    Legal because the expansions are accurate to a few units in the last place of float64. They need more nodes.
    Operators of float32 have kernels and stay.
    """

    name = "legalize_64_bit"
    op_types: ClassVar[tuple[str, ...]] = ()

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Expands one node."""
        x = node.inputs[0]
        if x is None or not isinstance(x.type, ir.TensorType) or x.dtype not in (DataType.DOUBLE, DataType.INT64):
            return False
        if any(x.dtype in next(iter(kernel.admitted.values())) for kernel in self.kernels(node, editor.opset)):
            return False
        if x.dtype is DataType.INT64 and node.op_type not in _OF_INTEGERS:
            return False
        result = EXPANSIONS[node.op_type](NodeBuilder(node, editor, x.dtype), x)
        last = result.producer() if result is not None else None
        if last is None:
            return self.declines(node, "its expansion needs sizes that are not known, or does not cover its attributes")
        editor.replace(node, last.op_type, last.inputs, last.attributes)
        editor.remove_if_unused(last)
        return True


# ---------------------------------------------------------------- activations


def _relu(f: NodeBuilder, x: Value) -> Value:
    """Expands Relu: max(x, 0)."""
    return f.Max(x, 0)


def _leaky_relu(f: NodeBuilder, x: Value) -> Value:
    """Expands LeakyRelu: x, or alpha x below zero."""
    return f.Where(f.Less(x, 0.0), f.Mul(x, float(f.attribute("alpha", 0.01))), x)


def _prelu(f: NodeBuilder, x: Value) -> Value:
    """Expands PRelu: x, or slope x below zero."""
    return f.Where(f.Less(x, 0.0), f.Mul(x, f.node.inputs[1]), x)


def _expm1(f: NodeBuilder, x: Value) -> Value:
    """exp(x) - 1 = 2 t / (1 - t) with t = tanh(x / 2), which has no cancellation for x < 0."""
    t = f.Tanh(f.Mul(x, 0.5))
    return f.Div(f.Mul(t, 2.0), f.Sub(1.0, t))


def _elu(f: NodeBuilder, x: Value) -> Value:
    """Expands Elu: x, or alpha (exp(x) - 1) below zero."""
    below = f.Mul(_expm1(f, f.Min(x, 0.0)), float(f.attribute("alpha", 1.0)))
    return f.Where(f.Less(x, 0.0), below, x)


def _celu(f: NodeBuilder, x: Value) -> Value:
    """Expands Celu: x, or alpha (exp(x / alpha) - 1) below zero."""
    alpha = float(f.attribute("alpha", 1.0))
    return f.Where(f.Less(x, 0.0), f.Mul(_expm1(f, f.Min(f.Div(x, alpha), 0.0)), alpha), x)


def _selu(f: NodeBuilder, x: Value) -> Value:
    """Expands Selu: gamma x, or gamma alpha (exp(x) - 1) below zero.

    The constants are those of the definition, because the attributes are float32.
    """
    alpha = 1.6732632423543772848170429916717
    gamma = 1.0507009873554804934193349852946
    return f.Mul(f.Where(f.Less(x, 0.0), f.Mul(_expm1(f, f.Min(x, 0.0)), alpha), x), gamma)


def _softplus(f: NodeBuilder, x: Value) -> Value:
    """Expands Softplus: max(x, 0) + log(1 + exp(-|x|))."""
    return f.Add(f.Max(x, 0.0), f.log1p(f.Exp(f.Neg(f.Abs(x)))))


def _softsign(f: NodeBuilder, x: Value) -> Value:
    """Expands Softsign: x / (1 + |x|)."""
    return f.Div(x, f.Add(f.Abs(x), 1.0))


def _hard_sigmoid(f: NodeBuilder, x: Value) -> Value:
    """Expands HardSigmoid: alpha x + beta, limited to [0, 1]. An alpha of 1/6 rounded to float32 becomes 1/6 again."""
    alpha, beta = (
        undo_float32_rounding(f.attribute(name, default)) for name, default in (("alpha", 0.2), ("beta", 0.5))
    )
    return f.Max(f.Min(f.Add(f.Mul(x, alpha), beta), 1.0), 0.0)


def _hard_swish(f: NodeBuilder, x: Value) -> Value:
    """Expands HardSwish: x times (x / 6 + 1 / 2), where that factor is limited to [0, 1]."""
    return f.Mul(x, f.Max(f.Min(f.Add(f.Div(x, 6.0), 0.5), 1.0), 0.0))


def _thresholded_relu(f: NodeBuilder, x: Value) -> Value:
    """Expands ThresholdedRelu: x above alpha, or 0."""
    return f.Where(f.Greater(x, float(f.attribute("alpha", 1.0))), x, 0.0)


def _gelu(f: NodeBuilder, x: Value) -> Value:
    """Expands Gelu: x times the cumulative normal distribution, computed by erf or approximated by tanh."""
    if f.attribute("approximate", "none") in ("tanh", b"tanh"):
        cubic = f.Add(x, f.Mul(f.Mul(f.Mul(x, x), x), 0.044715))
        half = f.Tanh(f.Mul(cubic, math.sqrt(2 / math.pi)))
    else:
        half = f.Erf(f.Mul(x, math.sqrt(0.5)))
    return f.Mul(f.Mul(x, 0.5), f.Add(half, 1.0))


def _mish(f: NodeBuilder, x: Value) -> Value:
    """Expands Mish: x tanh(softplus(x))."""
    return f.Mul(x, f.Tanh(_softplus(f, x)))


# ---------------------------------------------------------------- functions


def _erf(f: NodeBuilder, x: Value) -> Value:
    """Expands Erf: a polynomial in x² below 2, another in 1 / x² up to 6, and 1 beyond."""
    a = f.Min(f.Abs(x), 6.0)
    low = f.Min(a, 2.0)
    inner = f.Mul(low, f.polynomial(f.Sub(f.Mul(f.Mul(low, low), 0.5), 1.0), _ERF))
    high = f.Max(a, 2.0)
    square = f.Mul(high, high)
    tail = f.Mul(f.polynomial(f.Sub(f.Div(9.0, square), 1.25), _ERFC), f.Div(f.Exp(f.Neg(square)), high))
    return f.odd(x, f.Where(f.Less(a, 2.0), inner, f.Sub(1.0, tail)))


def _tan(f: NodeBuilder, x: Value) -> Value:
    """Expands Tan: sin / cos."""
    return f.Div(f.Sin(x), f.Cos(x))


def _sinh(f: NodeBuilder, x: Value) -> Value:
    """Expands Sinh: (exp(x) - exp(-x)) / 2; near zero 2 t / (1 - t²) with t = tanh(x / 2)."""
    half = f.Mul(f.Exp(f.Mul(f.Abs(x), 0.5)), math.sqrt(0.5))
    large = f.Sub(f.Mul(half, half), f.Div(f.Exp(f.Neg(f.Abs(x))), 2.0))
    t = f.Tanh(f.Mul(x, 0.5))
    small = f.Div(f.Mul(t, 2.0), f.Sub(1.0, f.Mul(t, t)))
    return f.Where(f.Less(f.Abs(x), 1.0), small, f.odd(x, large))


def _cosh(f: NodeBuilder, x: Value) -> Value:
    """Expands Cosh: (exp(x) + exp(-x)) / 2."""
    half = f.Mul(f.Exp(f.Mul(f.Abs(x), 0.5)), math.sqrt(0.5))
    return f.Add(f.Mul(half, half), f.Div(f.Exp(f.Neg(f.Abs(x))), 2.0))


def _asinh(f: NodeBuilder, x: Value) -> Value:
    """Expands Asinh: log(|x| + sqrt(x² + 1)) by log1p, with the sign of x; log(2 |x|) where x² would overflow."""
    a = f.Abs(x)
    b = f.Min(a, 1e9)
    square = f.Mul(b, b)
    near = f.log1p(f.Add(b, f.Div(square, f.Add(f.Sqrt(f.Add(square, 1.0)), 1.0))))
    return f.odd(x, f.Where(f.Greater(a, 1e9), f.Add(f.Log(a), math.log(2)), near))


def _acosh(f: NodeBuilder, x: Value) -> Value:
    """Expands Acosh: log(x + sqrt(x² - 1)) by log1p; log(2 x) where x² would overflow."""
    t = f.Sub(f.Min(x, 1e9), 1.0)
    near = f.log1p(f.Add(t, f.Sqrt(f.Mul(t, f.Add(t, 2.0)))))
    return f.Where(f.Greater(x, 1e9), f.Add(f.Log(x), math.log(2)), near)


def _atanh(f: NodeBuilder, x: Value) -> Value:
    """Expands Atanh: log(1 + 2 x / (1 - x)) / 2."""
    a = f.Abs(x)
    return f.odd(x, f.Mul(f.log1p(f.Div(f.Mul(a, 2.0), f.Sub(1.0, a))), 0.5))


def _atan(f: NodeBuilder, x: Value) -> Value:
    """Expands Atan: takes the reciprocal above 1, halves the angle twice, then sums the series up to the 25th power."""
    a = f.Abs(x)
    steep = f.Greater(a, 1.0)
    z = f.Where(steep, f.Div(1.0, a), a)
    for _ in range(2):
        z = f.Div(z, f.Add(f.Sqrt(f.Add(f.Mul(z, z), 1.0)), 1.0))
    series = f.polynomial(f.Mul(z, z), [(-1) ** n / (2 * n + 1) for n in range(13)])
    angle = f.Mul(f.Mul(z, 4.0), series)
    return f.odd(x, f.Where(steep, f.Sub(math.pi / 2, angle), angle))


def _asin(f: NodeBuilder, x: Value) -> Value:
    """Expands Asin: atan(x / sqrt(1 - x²))."""
    return f.Atan(f.Div(x, f.Sqrt(f.Mul(f.Sub(1.0, x), f.Add(x, 1.0)))))


def _acos(f: NodeBuilder, x: Value) -> Value:
    """Expands Acos: 2 atan(sqrt((1 - x) / (1 + x)))."""
    return f.Mul(f.Atan(f.Sqrt(f.Div(f.Sub(1.0, x), f.Add(x, 1.0)))), 2.0)


# ---------------------------------------------------------------- layout and normalization


def _instance_normalization(f: NodeBuilder, x: Value) -> Value | None:
    """Expands InstanceNormalization: (x - mean) / sqrt(variance + epsilon) * scale + shift.

    The mean and the variance are over the spatial axes.
    """
    if x.shape is None:
        return None
    axes = list(range(2, len(x.shape)))
    scale, shift = (f.Unsqueeze(each, [axis - 1 for axis in axes]) for each in f.node.inputs[1:3])
    centred = f.Sub(x, f.ReduceMean(x, axes, keepdims=1))
    variance = f.ReduceMean(f.Mul(centred, centred), axes, keepdims=1)
    deviation = f.Sqrt(f.Add(variance, undo_float32_rounding(f.attribute("epsilon", 1e-5))))
    return f.Add(f.Mul(f.Div(centred, deviation), scale), shift)


def _non_zero(f: NodeBuilder, x: Value) -> Value:
    """Expands NonZero: casts x to bool first."""
    return f.NonZero(f.Cast(x, to=int(DataType.BOOL)))


def _depth_to_space(f: NodeBuilder, x: Value) -> Value:
    """Expands DepthToSpace: splits the depth into block and depth, and moves the block to the spatial axes."""
    block, columns_first = f.attribute("blocksize"), f.attribute("mode", "DCR") in ("CRD", b"CRD")
    batch, spatial = f.Shape(x, start=0, end=1), f.Shape(x, start=2)
    depth = f.Div(f.Shape(x, start=1, end=2), [block * block])
    apart = (depth, [block], [block]) if columns_first else ([block], [block], depth)
    x = _reshaped(f, x, batch, *apart, spatial)
    x = f.Transpose(x, perm=[0, 1, 4, 2, 5, 3] if columns_first else [0, 3, 4, 1, 5, 2])
    return _reshaped(f, x, batch, depth, f.Mul(spatial, [block]))


def _space_to_depth(f: NodeBuilder, x: Value) -> Value:
    """Expands SpaceToDepth: splits the spatial axes into size and block, and moves the block to the depth."""
    block = f.attribute("blocksize")
    sizes = [f.Shape(x, start=axis, end=axis + 1) for axis in range(4)]
    height, width = (f.Div(size, [block]) for size in sizes[2:])
    x = _reshaped(f, x, *sizes[:2], height, [block], width, [block])
    x = f.Transpose(x, perm=[0, 3, 5, 1, 2, 4])
    return _reshaped(f, x, sizes[0], f.Mul(sizes[1], [block * block]), height, width)


def _reshaped(f: NodeBuilder, x: Value, *sizes: Value | list[int]) -> Value:
    """Reshapes x to these sizes, of which any may be 0."""
    return f.Reshape(x, f.Concat(*sizes, axis=0), allowzero=1)


Expansion = Callable[[NodeBuilder, Value], Value | None]

EXPANSIONS: dict[str, Expansion] = {
    "Relu": _relu,
    "LeakyRelu": _leaky_relu,
    "PRelu": _prelu,
    "Elu": _elu,
    "Celu": _celu,
    "Selu": _selu,
    "Softplus": _softplus,
    "Softsign": _softsign,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "ThresholdedRelu": _thresholded_relu,
    "Gelu": _gelu,
    "Mish": _mish,
    "Erf": _erf,
    "Tan": _tan,
    "Sinh": _sinh,
    "Cosh": _cosh,
    "Asinh": _asinh,
    "Acosh": _acosh,
    "Atanh": _atanh,
    "Atan": _atan,
    "Asin": _asin,
    "Acos": _acos,
    "GlobalAveragePool": conv_and_pool.global_average_pool,
    "GlobalMaxPool": conv_and_pool.global_max_pool,
    "Conv": conv_and_pool.conv,
    "ConvTranspose": conv_and_pool.conv_transpose,
    "AveragePool": conv_and_pool.average_pool,
    "Resize": resize,
    "InstanceNormalization": _instance_normalization,
    "NonZero": _non_zero,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
}
"""op_type → the function that inserts the expansion and returns its result, or None if it cannot expand the node."""

Legalize64Bit.op_types = tuple(EXPANSIONS)
