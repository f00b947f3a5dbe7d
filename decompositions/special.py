"""Decompositions of the error function, the gamma function and related functions into elementary functions.

They compute in float64 and round at the end, so that cancellation and long sums cost no digit of a float32. The errors
in comments are relative errors against mpmath, unless the comment names another kind. Formulas: Digital Library of
Mathematical Functions (DLMF), chapters 5, 7 and 25.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_onnx.decompositions.arithmetic import floating
from fx_onnx.decompositions.registry import aten, decomposes

# ---------------------------------------------------------------- shared helpers


def doubled(*operands: Any) -> tuple[Any, ...]:
    """Returns one or two operands with their tensors in float64, followed by the dtype of the result."""
    operands = floating(*operands)
    dtype = next(x.dtype for x in operands if isinstance(x, Tensor))
    return (*(x.double() if isinstance(x, Tensor) else float(x) for x in operands), dtype)


_LIBRARY = torch.library.Library("fx_onnx", "FRAGMENT")  # the operators exist as long as this object
_LIBRARY.define("polynomial(Tensor x, float[] coefficients) -> Tensor", tags=torch.Tag.pointwise)


def _horner(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Evaluates a polynomial by Horner's scheme."""
    result = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + coefficient
    return result


_LIBRARY.impl("polynomial", _horner, "CompositeExplicitAutograd")
_LIBRARY.impl("polynomial", lambda x, coefficients: torch.empty_like(x), "Meta")


def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Returns c[0] + c[1] x + c[2] x² + …, as one operator of any degree."""
    result: Tensor = torch.ops.fx_onnx.polynomial(x, list(coefficients))
    return result


# ---------------------------------------------------------------- the error function

# log(erfcx(x) / t) with t = 2 / (2 + x), as a polynomial in 2t - 1, for x >= 0. The coefficients come from Chebyshev
# interpolation with 40 digits; the error is below 1e-14 for all x.
_LOG_ERFCX = (
    -0.6717940840566905, 0.6726432239776567, 0.04734330684139575, -0.04689561023118345, -0.009872689342023714,
    0.008824938557318043, 0.0017589330988850738, -0.0023458125029206384, -0.0001462423779783492,
    0.0006736787892286757, -9.376103922042785e-05, -0.0001743026777415729, 7.149729347132242e-05,
    3.174303989125886e-05, -3.0424804196234133e-05, 1.4671892565573574e-07, 8.957141043157235e-06,
    -2.9712581178582877e-06, -1.7161931348241182e-06, 1.2889414656295187e-06, 1.611507277019833e-07,
    -2.918140093107583e-07, 5.453996235874533e-10, 3.020180971825513e-08,
)  # fmt: skip


def _erfcx(x: Tensor) -> Tensor:
    """Returns exp(x²) erfc(x) for x >= 0."""
    t = 2 / (2 + x)
    return t * torch.exp(polynomial(2 * t - 1, _LOG_ERFCX))


@decomposes(aten.erfc.default, aten.special_erfc.default)
def erfc(self: Tensor) -> Tensor:
    """Returns 1 - erf(self), with a small relative error also where the result is tiny."""
    x, dtype = doubled(self)
    return _erfc(x).to(dtype)


def _erfc(x: Tensor) -> Tensor:
    """Returns erfc(x) of a float64 tensor."""
    magnitude = torch.abs(x)
    tail = torch.exp(-x * x) * _erfcx(magnitude)
    return torch.where(x < 0, 2 - tail, tail)


@decomposes(aten.special_erfcx.default)
def special_erfcx(self: Tensor) -> Tensor:
    """Returns exp(self²) erfc(self)."""
    x, dtype = doubled(self)
    scaled = _erfcx(torch.abs(x))
    return torch.where(x < 0, 2 * torch.exp(x * x) - scaled, scaled).to(dtype)


@decomposes(aten.special_ndtr.default)
def special_ndtr(self: Tensor) -> Tensor:
    """Returns the normal distribution function, erfc(-self / sqrt 2) / 2."""
    x, dtype = doubled(self)
    return (_erfc(x * -math.sqrt(0.5)) * 0.5).to(dtype)


@decomposes(aten.special_log_ndtr.default)
def special_log_ndtr(self: Tensor) -> Tensor:
    """Returns log(ndtr(self)), computed from erfcx where ndtr would underflow."""
    x, dtype = doubled(self)
    low = torch.log(_erfcx(torch.abs(x) * math.sqrt(0.5)) * 0.5) - x * x * 0.5
    high = torch.log1p(_erfc(x * math.sqrt(0.5)) * -0.5)
    return torch.where(x < -1, low, high).to(dtype)


# The Taylor series erfinv(y) = y (c0 + c1 y² + …): error 1e-12 for |y| < 0.07.
_ERFINV = tuple(
    c * math.sqrt(math.pi) / 2
    for c in (1, math.pi / 12, 7 * math.pi**2 / 480, 127 * math.pi**3 / 40320, 4369 * math.pi**4 / 5806080)
)


def _erfcinv(q: Tensor) -> Tensor:
    """Returns the x >= 0 with erfc(x) = q, for 0 < q <= 1.

    It starts from Winitzki's formula and takes three Newton steps for log(erfc).
    """
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
    """Returns the inverse of erf; infinities at 1 and -1, and NaN beyond."""
    y, dtype = doubled(self)
    magnitude = torch.abs(y)
    far = _erfcinv(1 - magnitude) * torch.sign(y)
    far = torch.where(magnitude == 1, y * torch.inf, far)
    return torch.where(magnitude < 0.07, y * polynomial(y * y, _ERFINV), far).to(dtype)


@decomposes(aten.special_ndtri.default)
def special_ndtri(self: Tensor) -> Tensor:
    """Returns the inverse of the normal distribution function; infinities at 0 and 1, and NaN beyond."""
    p, dtype = doubled(self)
    x = _erfcinv(2 * torch.minimum(p, 1 - p)) * math.sqrt(2)
    x = torch.where((p == 0) | (p == 1), torch.inf, x)
    y = 2 * p - 1
    near = y * polynomial(y * y, _ERFINV) * math.sqrt(2)
    return torch.where(torch.abs(y) < 0.07, near, torch.where(p < 0.5, -x, x)).to(dtype)


# ---------------------------------------------------------------- the gamma function

_SHIFT = 8  # from here on, the error of the asymptotic series below is less than 1e-12
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)
_DIGAMMA = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132)
_RISING = (0.0, 5040.0, 13068.0, 13132.0, 6769.0, 1960.0, 322.0, 28.0, 1.0)
"""The coefficients of x (x + 1) … (x + 7), which is gamma(x + 8) / gamma(x)."""
_RISING_SLOPE = [k * c for k, c in enumerate(_RISING)][1:]


def _fraction(x: Tensor) -> Tensor:
    """Returns x minus the nearest integer.

    sin(pi fraction) and tan(pi fraction) equal sin(pi x) and tan(pi x) up to sign. They are exact at the poles, where
    the fraction is 0.
    """
    return x - torch.round(x)


def _cotangent(fraction: Tensor) -> Tensor:
    """Returns cot(pi x) for a fraction x."""
    angle = fraction * math.pi
    return torch.cos(angle) / torch.sin(angle)


def _positive_lgamma(x: Tensor) -> Tensor:
    """Returns log(gamma(x)) for x >= 0.5, by Stirling's series (DLMF 5.11.1), applied to x + 8 where x is below 8."""
    small = x < _SHIFT
    product = polynomial(torch.clamp(x, max=float(_SHIFT)), _RISING)
    large = torch.where(small, x + _SHIFT, x)
    inverse = 1 / large
    stirling = (large - 0.5) * (torch.log(large) - 1) + (math.log(2 * math.pi) - 1) / 2
    stirling = stirling + inverse * polynomial(inverse * inverse, _STIRLING)
    return torch.where(small, stirling - torch.log(product), stirling)


def lgamma_double(x: Tensor) -> Tensor:
    """Returns log|gamma(x)| of a float64 tensor; below 0.5 by the reflection formula (DLMF 5.5.3)."""
    below = x < 0.5
    result = _positive_lgamma(torch.where(below, 1 - x, x))
    reflected = math.log(math.pi) - torch.log(torch.abs(torch.sin(_fraction(x) * math.pi))) - result
    return torch.where(torch.abs(x) == torch.inf, torch.inf, torch.where(below, reflected, result))


@decomposes(aten.lgamma.default, aten.special_gammaln.default)
def lgamma(self: Tensor) -> Tensor:
    """Returns log|gamma(self)|, infinite at 0 and the negative integers. The error is 1e-12, absolute near zeros."""
    x, dtype = doubled(self)
    return lgamma_double(x).to(dtype)


@decomposes(aten.mvlgamma.default, aten.special_multigammaln.default)
def mvlgamma(self: Tensor, p: int) -> Tensor:
    """Returns the multivariate log-gamma function.

    It is p (p - 1) / 4 log(pi) + the sum of lgamma(self - j / 2) for 0 <= j < p (DLMF 35.3.4).
    """
    x, dtype = doubled(self)
    terms = lgamma_double(x.unsqueeze(-1) - torch.arange(p, device=x.device) / 2)
    return (terms.sum(-1) + p * (p - 1) / 4 * math.log(math.pi)).to(dtype)


@decomposes(aten.digamma.default, aten.special_psi.default, aten.special_digamma.default)
def digamma(self: Tensor) -> Tensor:
    """Returns the derivative of lgamma (DLMF 5.11.2; below 0 by the reflection formula 5.5.4).

    It is NaN at the negative integers, -inf at 0 and inf at -0.
    """
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
# B(2j) / (2j)! in the Euler-Maclaurin formula, where B are the Bernoulli numbers.
_EULER_MACLAURIN = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600,
)  # fmt: skip


def _zeta(s: Tensor | float, q: Tensor, terms: int = _TERMS) -> Tensor:
    """Returns the sum of (q + k) ** -s over k >= 0.

    It adds ``terms`` terms, and the Euler-Maclaurin formula gives the rest (DLMF 25.11.5 and 2.10.1).
    """
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
    """Returns the Hurwitz zeta function of s = self and q = other, as torch defines it.

    It is NaN for q below -20, because the 30 terms that it sums would then be too few.
    """
    s, q, dtype = doubled(self, other)
    s = s if isinstance(s, Tensor) else torch.full_like(q, s)
    q = q if isinstance(q, Tensor) else torch.full_like(s, q)
    whole = q == torch.floor(q)
    # A negative base is valid with an integer power only, for which all runtimes compute the same.
    result = _zeta(s, q, 30)
    invalid = (s < 1) | ((q <= 0) & ~whole & (s != torch.floor(s))) | (q < -20)
    result = torch.where(invalid, torch.nan, result)
    return torch.where((s == 1) | ((q <= 0) & whole & (s > 1)), torch.inf, result).to(dtype)


def _cotangent_derivative(order: int) -> list[int]:
    """Returns the coefficients of the polynomial P with d^n/dx^n cot(x) = P(cot(x)).

    Each derivative maps P to -(1 + c²) P'(c).
    """
    coefficients = [0, 1]
    for _ in range(order):
        slope = [k * c for k, c in enumerate(coefficients)][1:]
        coefficients = [
            -(slope[k] if k < len(slope) else 0) - (slope[k - 2] if k >= 2 else 0) for k in range(len(slope) + 2)
        ]
    return coefficients


@decomposes(aten.polygamma.default, aten.special_polygamma.default)
def polygamma(n: int, self: Tensor) -> Tensor:
    """Returns the n-th derivative of digamma: (-1)^(n + 1) n! zeta(n + 1, self).

    Source: DLMF 5.15; below 0 by the reflection formula 5.15.6.
    """
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
