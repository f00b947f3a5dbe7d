"""Legalization of functions of one number: trigonometric and hyperbolic ones, and Erf."""

from __future__ import annotations

import math

import onnx_ir as ir
from onnx_ir import Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.table import WIDE, legalizes
from fx_onnx.passes.rules import Result

__all__ = list[str]()

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
