"""Bessel and Airy functions: power series near zero, asymptotic expansions far from it, all in float64.

The coefficients follow from the definitions in the Digital Library of Mathematical Functions (DLMF): the series 10.2,
10.8, 10.25 and 10.31, Hankel's expansions 10.17 and 10.40, and Airy's functions 9.4 and 9.7. The error is largest where
the series and the expansion meet: the series loses digits to cancellation, and the expansion diverges. That error is
given at each limit.
"""

import math

import torch
from torch import Tensor

from fx_onnx.decompositions.registry import aten, decomposes
from fx_onnx.decompositions.special import doubled, polynomial

_EULER = 0.57721566490153286
_FAR = 16.0  # from here on, I, J and Y use the expansions: error 1e-10
_FAR_K = 9.0  # from here on, K uses its expansion: error 2e-8
_SERIES_TERMS = 42


def _scaled_polynomial(x: Tensor, coefficients: list[float], limit: float) -> Tensor:
    """Returns a polynomial in x, for |x| up to ``limit``, evaluated as a polynomial in x / limit.

    Some runtimes flush numbers that are too small for float32 to zero, even in float64. The coefficients of a
    polynomial in x / limit are large enough.
    """
    return polynomial(x * (1 / limit), [c * limit**k for k, c in enumerate(coefficients)])


def _series(order: int, sign: int) -> list[float]:
    """Returns the coefficients sign^k / (k! (k + n)!) of a power series in (x / 2)².

    The Bessel function of order n is (x / 2)^n times this series.
    """
    return [sign**k / (math.factorial(k) * math.factorial(k + order)) for k in range(_SERIES_TERMS)]


def _harmonic(k: int) -> float:
    """Returns the harmonic number 1 + 1/2 + … + 1/k."""
    return sum(1 / i for i in range(1, k + 1))


def _second_series(order: int, sign: int) -> list[float]:
    """Returns the coefficients of the series that is added to the logarithm in functions of the second kind.

    They are those of ``_series``, times H(k) + H(k + n), where H are the harmonic numbers.
    """
    return [c * (_harmonic(k) + _harmonic(k + order)) for k, c in enumerate(_series(order, sign))]


def _hankel(order: int, terms: int) -> list[float]:
    """Returns a(k) = (4n² - 1)(4n² - 9) … (4n² - (2k - 1)²) / (k! 8^k). Source: DLMF 10.17.1."""
    result = [1.0]
    for k in range(1, terms):
        result.append(result[-1] * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k))
    return result


# ---------------------------------------------------------------- the modified functions I and K


def _scaled_i(x: Tensor, order: int) -> Tensor:
    """Returns exp(-x) I(x) for x >= 0."""
    near = torch.clamp(x, max=_FAR)
    half = near * 0.5
    series = _scaled_polynomial(half * half, _series(order, 1), _FAR**2 / 4) * torch.exp(-near)
    if order == 1:
        series = series * half
    far = torch.clamp(x, min=_FAR)
    terms = [(-1) ** k * a for k, a in enumerate(_hankel(order, 20))]
    return torch.where(x < _FAR, series, polynomial(1 / far, terms) / torch.sqrt(2 * math.pi * far))


def _scaled_k(x: Tensor, order: int) -> Tensor:
    """Returns exp(x) K(x) for x > 0, infinity at 0 and NaN below."""
    near = torch.clamp(x, max=_FAR_K)
    half = near * 0.5
    square, logarithm = half * half, torch.log(half) + _EULER
    first = logarithm * _scaled_polynomial(square, _series(order, 1), _FAR_K**2 / 4)
    second = _scaled_polynomial(square, [c * 0.5 for c in _second_series(order, 1)], _FAR_K**2 / 4)
    series = second - first if order == 0 else 1 / near + half * (first - second)
    far = torch.clamp(x, min=_FAR_K)
    expansion = polynomial(1 / far, _hankel(order, 18)) * torch.sqrt(math.pi / (2 * far))
    result = torch.where(x < _FAR_K, series * torch.exp(near), expansion)
    return torch.where(x == 0, torch.inf, result)


@decomposes(aten.i0.default, aten.special_i0.default, aten.special_modified_bessel_i0.default)
def i0(self: Tensor) -> Tensor:
    """Returns I0: the modified Bessel function of the first kind of order 0."""
    x, dtype = doubled(self)
    magnitude = torch.abs(x)
    return (_scaled_i(magnitude, 0) * torch.exp(magnitude)).to(dtype)


@decomposes(aten.special_i0e.default)
def special_i0e(self: Tensor) -> Tensor:
    """Returns exp(-|self|) I0(self)."""
    x, dtype = doubled(self)
    return _scaled_i(torch.abs(x), 0).to(dtype)


@decomposes(aten.special_i1.default, aten.special_modified_bessel_i1.default)
def special_i1(self: Tensor) -> Tensor:
    """Returns I1: the modified Bessel function of the first kind of order 1, which is odd."""
    x, dtype = doubled(self)
    magnitude = torch.abs(x)
    return (_scaled_i(magnitude, 1) * torch.exp(magnitude) * torch.sign(x)).to(dtype)


@decomposes(aten.special_i1e.default)
def special_i1e(self: Tensor) -> Tensor:
    """Returns exp(-|self|) I1(self)."""
    x, dtype = doubled(self)
    return (_scaled_i(torch.abs(x), 1) * torch.sign(x)).to(dtype)


@decomposes(aten.special_modified_bessel_k0.default)
def special_modified_bessel_k0(self: Tensor) -> Tensor:
    """Returns K0: the modified Bessel function of the second kind of order 0."""
    x, dtype = doubled(self)
    return (_scaled_k(x, 0) * torch.exp(-x)).to(dtype)


@decomposes(aten.special_modified_bessel_k1.default)
def special_modified_bessel_k1(self: Tensor) -> Tensor:
    """Returns K1: the modified Bessel function of the second kind of order 1."""
    x, dtype = doubled(self)
    return (_scaled_k(x, 1) * torch.exp(-x)).to(dtype)


@decomposes(aten.special_scaled_modified_bessel_k0.default)
def special_scaled_modified_bessel_k0(x: Tensor) -> Tensor:
    """Returns exp(x) K0(x)."""
    value, dtype = doubled(x)
    return _scaled_k(value, 0).to(dtype)


@decomposes(aten.special_scaled_modified_bessel_k1.default)
def special_scaled_modified_bessel_k1(x: Tensor) -> Tensor:
    """Returns exp(x) K1(x)."""
    value, dtype = doubled(x)
    return _scaled_k(value, 1).to(dtype)


# ---------------------------------------------------------------- J and Y


def _far_j_and_y(x: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """Returns J and Y of a large x, by Hankel's expansions.

    They are sqrt(2 / (pi x)) times the sums P and Q, rotated by the phase x - (2n + 1) pi / 4. Source: DLMF 10.17.3.
    """
    terms = _hankel(order, 16)
    inverse = 1 / x
    square = inverse * inverse
    p = polynomial(square, [(-1) ** k * a for k, a in enumerate(terms[0::2])])
    q = polynomial(square, [(-1) ** k * a for k, a in enumerate(terms[1::2])]) * inverse
    phase = x - (2 * order + 1) * math.pi / 4
    cosine, sine, scale = torch.cos(phase), torch.sin(phase), torch.sqrt(inverse * (2 / math.pi))
    return scale * (p * cosine - q * sine), scale * (p * sine + q * cosine)


def _near_j(x: Tensor, order: int) -> Tensor:
    """Returns J of a small x, by its power series."""
    half = x * 0.5
    series = _scaled_polynomial(half * half, _series(order, -1), _FAR**2 / 4)
    return series * half if order == 1 else series


def _bessel_j(self: Tensor, order: int) -> Tensor:
    """Returns the Bessel function of the first kind of order 0 or 1."""
    x, dtype = doubled(self)
    magnitude = torch.abs(x)
    far = _far_j_and_y(torch.clamp(magnitude, min=_FAR), order)[0]
    result = torch.where(magnitude < _FAR, _near_j(torch.clamp(magnitude, max=_FAR), order), far)
    result = torch.where(magnitude == torch.inf, 0.0, result)
    return (result * torch.sign(x) if order == 1 else result).to(dtype)


def _bessel_y(self: Tensor, order: int) -> Tensor:
    """Returns the Bessel function of the second kind of order 0 or 1."""
    x, dtype = doubled(self)
    near = torch.clamp(x, max=_FAR)
    half = near * 0.5
    series = _scaled_polynomial(half * half, [c * 0.5 for c in _second_series(order, -1)], _FAR**2 / 4)
    if order == 1:
        series = series * half + 1 / near
    close = (2 / math.pi) * ((torch.log(half) + _EULER) * _near_j(near, order) - series)
    far = torch.where(x == torch.inf, 0.0, _far_j_and_y(torch.clamp(x, min=_FAR), order)[1])
    result = torch.where(x < _FAR, close, far)
    return torch.where(x == 0, -torch.inf, result).to(dtype)


@decomposes(aten.special_bessel_j0.default)
def special_bessel_j0(self: Tensor) -> Tensor:
    """Returns J0: the Bessel function of the first kind of order 0."""
    return _bessel_j(self, 0)


@decomposes(aten.special_bessel_j1.default)
def special_bessel_j1(self: Tensor) -> Tensor:
    """Returns J1: the Bessel function of the first kind of order 1, which is odd."""
    return _bessel_j(self, 1)


@decomposes(aten.special_bessel_y0.default)
def special_bessel_y0(self: Tensor) -> Tensor:
    """Returns Y0: the Bessel function of the second kind of order 0; NaN below 0."""
    return _bessel_y(self, 0)


@decomposes(aten.special_bessel_y1.default)
def special_bessel_y1(self: Tensor) -> Tensor:
    """Returns Y1: the Bessel function of the second kind of order 1; NaN below 0."""
    return _bessel_y(self, 1)


@decomposes(aten.special_spherical_bessel_j0.default)
def special_spherical_bessel_j0(x: Tensor) -> Tensor:
    """Returns sin(x) / x, which is 1 at 0 and 0 at the infinities."""
    value, dtype = doubled(x)
    result = torch.where(value == 0, 1.0, torch.sin(value) / value)
    return torch.where(torch.abs(value) == torch.inf, 0.0, result).to(dtype)


# ---------------------------------------------------------------- the Airy function

_AIRY_NEAR, _AIRY_FAR = -7.5, 5.8  # the power series is used between them: error 2e-8
_AI_0 = 3 ** (-2 / 3) / math.gamma(2 / 3)
_AI_1 = -(3 ** (-1 / 3)) / math.gamma(1 / 3)


def _airy_series() -> tuple[list[float], list[float]]:
    """Returns the coefficients of the power series, in x³, of two solutions of y'' = x y. Source: DLMF 9.4.1."""
    even, odd = [1.0], [1.0]
    for k in range(1, 45):
        even.append(even[-1] / ((3 * k - 1) * (3 * k)))
        odd.append(odd[-1] / ((3 * k) * (3 * k + 1)))
    return even, odd


def _airy_expansion(terms: int) -> list[float]:
    """Returns u(k) = (6k - 5)(6k - 3)(6k - 1) / (216 k (2k - 1)) u(k - 1). Source: DLMF 9.7.2."""
    result = [1.0]
    for k in range(1, terms):
        result.append(result[-1] * (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216 * k * (2 * k - 1)))
    return result


@decomposes(aten.special_airy_ai.default)
def special_airy_ai(x: Tensor) -> Tensor:
    """Returns the Airy function Ai: its power series in the middle, its asymptotic expansions at both ends."""
    value, dtype = doubled(x)
    middle = torch.clamp(value, _AIRY_NEAR, _AIRY_FAR)
    cube = middle * middle * middle
    even, odd = _airy_series()
    limit = -(_AIRY_NEAR**3)
    series = _AI_0 * _scaled_polynomial(cube, even, limit) + _AI_1 * middle * _scaled_polynomial(cube, odd, limit)

    terms = _airy_expansion(16)
    high = torch.clamp(value, min=_AIRY_FAR)
    zeta = high * torch.sqrt(high) * (2 / 3)
    decay = torch.exp(-zeta) * polynomial(1 / zeta, [(-1) ** k * u for k, u in enumerate(terms)])
    decay = decay / (2 * math.sqrt(math.pi) * torch.sqrt(torch.sqrt(high)))

    low = torch.clamp(-value, min=-_AIRY_NEAR)
    inverse = 1.5 / (low * torch.sqrt(low))
    phase, square = 1 / inverse + math.pi / 4, inverse * inverse
    p = polynomial(square, [(-1) ** k * u for k, u in enumerate(terms[0::2])])
    q = polynomial(square, [(-1) ** k * u for k, u in enumerate(terms[1::2])]) * inverse
    wave = (torch.sin(phase) * p - torch.cos(phase) * q) / (math.sqrt(math.pi) * torch.sqrt(torch.sqrt(low)))

    return torch.where(value > _AIRY_FAR, decay, torch.where(value < _AIRY_NEAR, wave, series)).to(dtype)
