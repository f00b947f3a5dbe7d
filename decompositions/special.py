"""Special functions in elementary ones: the error function and the gamma function with their kin.

All are computed in float64, where cancellation and long sums cost nothing that float32 could see, and rounded at the
end. Errors are relative, against mpmath, unless said otherwise.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_onnx.decompositions.arithmetic import floating
from fx_onnx.decompositions.registry import aten, decomposes

# ---------------------------------------------------------------- what they share


def doubled(*operands: Any) -> tuple[Any, ...]:
    """The tensors among one or two operands in float64, then the dtype of the result."""
    operands = floating(*operands)
    dtype = next(x.dtype for x in operands if isinstance(x, Tensor))
    return (*(x.double() if isinstance(x, Tensor) else float(x) for x in operands), dtype)


_LIBRARY = torch.library.Library("fx_onnx", "FRAGMENT")  # lives as long as its operators
_LIBRARY.define("polynomial(Tensor x, float[] coefficients) -> Tensor", tags=torch.Tag.pointwise)


def _horner(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    result = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + coefficient
    return result


_LIBRARY.impl("polynomial", _horner, "CompositeExplicitAutograd")
torch.library.register_fake("fx_onnx::polynomial", lambda x, coefficients: torch.empty_like(x), lib=_LIBRARY)


def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """c[0] + c[1] x + c[2] x² + ... (Horner's scheme), one operator whatever its degree."""
    result: Tensor = torch.ops.fx_onnx.polynomial(x, list(coefficients))
    return result


# ---------------------------------------------------------------- the error function

# log(erfcx(x) / t) with t = 2 / (2 + x), as a polynomial in 2t - 1 for x >= 0. Made by Chebyshev interpolation in
# 40 digits; error below 1e-14 for all x.
_LOG_ERFCX = (
    -0.6717940840566905, 0.6726432239776567, 0.04734330684139575, -0.04689561023118345, -0.009872689342023714,
    0.008824938557318043, 0.0017589330988850738, -0.0023458125029206384, -0.0001462423779783492,
    0.0006736787892286757, -9.376103922042785e-05, -0.0001743026777415729, 7.149729347132242e-05,
    3.174303989125886e-05, -3.0424804196234133e-05, 1.4671892565573574e-07, 8.957141043157235e-06,
    -2.9712581178582877e-06, -1.7161931348241182e-06, 1.2889414656295187e-06, 1.611507277019833e-07,
    -2.918140093107583e-07, 5.453996235874533e-10, 3.020180971825513e-08,
)  # fmt: skip


def _erfcx(x: Tensor) -> Tensor:
    """exp(x²) erfc(x) of x >= 0."""
    t = 2 / (2 + x)
    return t * torch.exp(polynomial(2 * t - 1, _LOG_ERFCX))


@decomposes(aten.erfc.default, aten.special_erfc.default)
def erfc(self: Tensor) -> Tensor:
    """1 - erf(self), exact to the last where it is tiny."""
    x, dtype = doubled(self)
    return _erfc(x).to(dtype)


def _erfc(x: Tensor) -> Tensor:
    magnitude = torch.abs(x)
    tail = torch.exp(-x * x) * _erfcx(magnitude)
    return torch.where(x < 0, 2 - tail, tail)


@decomposes(aten.special_erfcx.default)
def special_erfcx(self: Tensor) -> Tensor:
    """exp(self²) erfc(self)."""
    x, dtype = doubled(self)
    scaled = _erfcx(torch.abs(x))
    return torch.where(x < 0, 2 * torch.exp(x * x) - scaled, scaled).to(dtype)


@decomposes(aten.special_ndtr.default)
def special_ndtr(self: Tensor) -> Tensor:
    """The normal distribution function, erfc(-self / sqrt 2) / 2."""
    x, dtype = doubled(self)
    return (_erfc(x * -math.sqrt(0.5)) * 0.5).to(dtype)


@decomposes(aten.special_log_ndtr.default)
def special_log_ndtr(self: Tensor) -> Tensor:
    """log(ndtr(self)), from erfcx where ndtr would underflow."""
    x, dtype = doubled(self)
    low = torch.log(_erfcx(torch.abs(x) * math.sqrt(0.5)) * 0.5) - x * x * 0.5
    high = torch.log1p(_erfc(x * math.sqrt(0.5)) * -0.5)
    return torch.where(x < -1, low, high).to(dtype)


# erfinv(y) = y (c0 + c1 y² + ...), the Taylor series, of error 1e-12 for |y| < 0.07.
_ERFINV = tuple(
    c * math.sqrt(math.pi) / 2
    for c in (1, math.pi / 12, 7 * math.pi**2 / 480, 127 * math.pi**3 / 40320, 4369 * math.pi**4 / 5806080)
)


def _erfcinv(q: Tensor) -> Tensor:
    """The x >= 0 with erfc(x) = q, for 0 < q <= 1: Winitzki's formula and three steps of Newton for log(erfc)."""
    logarithm = torch.log(q * (2 - q))
    middle = 2 / (math.pi * 0.147) + logarithm / 2
    x = torch.sqrt(torch.clamp(torch.sqrt(middle * middle - logarithm / 0.147) - middle, min=0.0))
    log_q = torch.log(q)
    for _ in range(3):
        scaled = _erfcx(x)
        x = torch.clamp(x + (torch.log(scaled) - x * x - log_q) * scaled * (math.sqrt(math.pi) / 2), min=0.0)
    return x


@decomposes(aten.erfinv.default, aten.special_erfinv.default)
def erfinv(self: Tensor) -> Tensor:
    """The inverse of erf; infinite at 1 and -1, NaN beyond."""
    y, dtype = doubled(self)
    magnitude = torch.abs(y)
    far = _erfcinv(1 - magnitude) * torch.sign(y)
    far = torch.where(magnitude == 1, y * torch.inf, far)
    return torch.where(magnitude < 0.07, y * polynomial(y * y, _ERFINV), far).to(dtype)


@decomposes(aten.special_ndtri.default)
def special_ndtri(self: Tensor) -> Tensor:
    """The inverse of the normal distribution function; infinite at 0 and 1, NaN beyond."""
    p, dtype = doubled(self)
    x = _erfcinv(2 * torch.minimum(p, 1 - p)) * math.sqrt(2)
    x = torch.where((p == 0) | (p == 1), torch.inf, x)
    y = 2 * p - 1
    near = y * polynomial(y * y, _ERFINV) * math.sqrt(2)
    return torch.where(torch.abs(y) < 0.07, near, torch.where(p < 0.5, -x, x)).to(dtype)


# ---------------------------------------------------------------- the gamma function

_SHIFT = 8  # the asymptotic series below err by less than 1e-12 from 8 on
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)
_DIGAMMA = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132)
_RISING = (0.0, 5040.0, 13068.0, 13132.0, 6769.0, 1960.0, 322.0, 28.0, 1.0)
"""The coefficients of x (x + 1) ... (x + 7), by which gamma(x + 8) is larger than gamma(x)."""
_RISING_SLOPE = [k * c for k, c in enumerate(_RISING)][1:]


def _fraction(x: Tensor) -> Tensor:
    """x minus the nearest integer, whose sine and tangent times pi are exact at the poles, where it is 0."""
    return x - torch.round(x)


def _cotangent(fraction: Tensor) -> Tensor:
    """cot(pi x)."""
    angle = fraction * math.pi
    return torch.cos(angle) / torch.sin(angle)


def _positive_lgamma(x: Tensor) -> Tensor:
    """log(gamma(x)) of x >= 0.5: Stirling's series, of x + 8 where x is below 8."""
    small = x < _SHIFT
    product = polynomial(torch.clamp(x, max=float(_SHIFT)), _RISING)
    large = torch.where(small, x + _SHIFT, x)
    inverse = 1 / large
    stirling = (large - 0.5) * (torch.log(large) - 1) + (math.log(2 * math.pi) - 1) / 2
    stirling = stirling + inverse * polynomial(inverse * inverse, _STIRLING)
    return torch.where(small, stirling - torch.log(product), stirling)


def lgamma_double(x: Tensor) -> Tensor:
    """log|gamma(x)| of any float64 x; below 0.5 by reflection."""
    below = x < 0.5
    result = _positive_lgamma(torch.where(below, 1 - x, x))
    reflected = math.log(math.pi) - torch.log(torch.abs(torch.sin(_fraction(x) * math.pi))) - result
    return torch.where(torch.abs(x) == torch.inf, torch.inf, torch.where(below, reflected, result))


@decomposes(aten.lgamma.default, aten.special_gammaln.default)
def lgamma(self: Tensor) -> Tensor:
    """log|gamma(self)|; infinite at 0 and the negative integers. Error 1e-12, absolute near the zeros."""
    x, dtype = doubled(self)
    return lgamma_double(x).to(dtype)


@decomposes(aten.mvlgamma.default, aten.special_multigammaln.default)
def mvlgamma(self: Tensor, p: int) -> Tensor:
    """The multivariate log-gamma function: p (p - 1) / 4 log(pi) + the sum of lgamma(self - j / 2) for j < p."""
    x, dtype = doubled(self)
    terms = lgamma_double(x.unsqueeze(-1) - torch.arange(p, device=x.device) / 2)
    return (terms.sum(-1) + p * (p - 1) / 4 * math.log(math.pi)).to(dtype)


@decomposes(aten.digamma.default, aten.special_psi.default, aten.special_digamma.default)
def digamma(self: Tensor) -> Tensor:
    """The derivative of lgamma; NaN at the negative integers, an infinity of the other sign at 0."""
    x, dtype = doubled(self)
    below = x < 0
    y = torch.where(below, 1 - x, x)
    small = y < _SHIFT
    large = torch.where(small, y + _SHIFT, y)
    inverse = 1 / large
    result = torch.log(large) - inverse * 0.5 + inverse * inverse * polynomial(inverse * inverse, _DIGAMMA)
    limited = torch.clamp(y, max=float(_SHIFT))
    shift = polynomial(limited, _RISING_SLOPE) / polynomial(limited, _RISING)  # 1 / y + 1 / (y + 1) + ...
    result = torch.where(small, result - shift, result)
    fraction = _fraction(x)
    reflected = result - math.pi * _cotangent(fraction)
    result = torch.where(below, torch.where(fraction == 0, torch.nan, reflected), result)
    return torch.where(x == 0, -1 / x, result).to(dtype)


# ---------------------------------------------------------------- zeta and polygamma

_TERMS = 10
# B(2j) / (2j)! of the Euler-Maclaurin formula.
_EULER_MACLAURIN = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600,
)  # fmt: skip


def _zeta(s: Tensor | float, q: Tensor, terms: int = _TERMS) -> Tensor:
    """The sum of (q + k) ** -s over k >= 0: ``terms`` of them, and the Euler-Maclaurin formula for the rest."""
    exponents = -s.unsqueeze(-1) if isinstance(s, Tensor) else -s
    first = torch.pow(q.unsqueeze(-1) + torch.arange(terms, device=q.device), exponents).sum(-1)
    edge = q + terms
    power, inverse = torch.pow(edge, -s), 1 / (edge * edge)
    rest: Any = _EULER_MACLAURIN[-1]
    for j in reversed(range(len(_EULER_MACLAURIN) - 1)):
        rest = inverse * ((s + 2 * j + 1) * (s + 2 * j + 2)) * rest + _EULER_MACLAURIN[j]
    total: Tensor = first + power * (edge / (s - 1) + 0.5 + rest * s / edge)
    return total


@decomposes(aten.special_zeta.default, aten.special_zeta.other_scalar, aten.special_zeta.self_scalar)
def special_zeta(self: Any, other: Any) -> Tensor:
    """Hurwitz's zeta function of s = self and q = other, as torch defines it; NaN for q below -20."""
    s, q, dtype = doubled(self, other)
    s = s if isinstance(s, Tensor) else torch.full_like(q, s)
    q = q if isinstance(q, Tensor) else torch.full_like(s, q)
    whole = q == torch.floor(q)
    # A negative base is only raised to integers, of which ONNX Pow makes what C's pow makes.
    result = _zeta(s, q, 30)
    invalid = (s < 1) | ((q <= 0) & ~whole & (s != torch.floor(s))) | (q < -20)
    result = torch.where(invalid, torch.nan, result)
    return torch.where((s == 1) | ((q <= 0) & whole & (s > 1)), torch.inf, result).to(dtype)


def _cotangent_derivative(order: int) -> list[int]:
    """The polynomial P with d^n/dx^n cot(x) = P(cot(x)): each derivative multiplies P' by -(1 + c²)."""
    coefficients = [0, 1]
    for _ in range(order):
        slope = [k * c for k, c in enumerate(coefficients)][1:]
        coefficients = [
            -(slope[k] if k < len(slope) else 0) - (slope[k - 2] if k >= 2 else 0) for k in range(len(slope) + 2)
        ]
    return coefficients


@decomposes(aten.polygamma.default, aten.special_polygamma.default)
def polygamma(n: int, self: Tensor) -> Tensor:
    """The n-th derivative of digamma: (-1)^(n + 1) n! zeta(n + 1, self), below 0 by reflection."""
    if n == 0:
        return torch.digamma(self)
    x, dtype = doubled(self)
    below = x < 0
    result = _zeta(float(n + 1), torch.where(below, 1 - x, x)) * ((-1.0) ** (n + 1) * math.gamma(n + 1))
    fraction = _fraction(x)
    coefficients = [float(c) for c in _cotangent_derivative(n)]
    derivative = polynomial(_cotangent(fraction), coefficients) * math.pi ** (n + 1)
    pole = (-1.0) ** (n + 1) * math.inf
    reflected = torch.where(fraction == 0, pole, (-1.0) ** n * result - derivative)
    return torch.where(below, reflected, result).to(dtype)
