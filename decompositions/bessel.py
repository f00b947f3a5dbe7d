"""Bessel functions in elementary ones: power series near zero, Hankel's asymptotic expansions beyond, in float64.

The coefficients follow from the definitions. The series lose to cancellation, and the expansions to divergence, most at
the point where one takes over from the other; the error there is given with each.
"""

import math

import torch
from torch import Tensor

from fx_onnx.decompositions.registry import aten, decomposes
from fx_onnx.decompositions.special import doubled, polynomial

_EULER = 0.57721566490153286
_FAR = 16.0  # from here on the expansions of I, J and Y are used: error 1e-10
_FAR_K = 9.0  # and those of K: error 2e-8
_SERIES = 42


def _scaled(x: Tensor, coefficients: list[float], limit: float) -> Tensor:
    """A polynomial in x, of magnitude up to ``limit``, as one in x / limit.

    No coefficient then is too small for float32, which some runtimes take for zero in float64 as well.
    """
    return polynomial(x * (1 / limit), [c * limit**k for k, c in enumerate(coefficients)])


def _series(order: int, sign: int) -> list[float]:
    """The coefficients sign^k / (k! (k + order)!) of (x / 2)^order times a polynomial in (x / 2)²."""
    return [sign**k / (math.factorial(k) * math.factorial(k + order)) for k in range(_SERIES)]


def _harmonic(k: int) -> float:
    return sum(1 / i for i in range(1, k + 1))


def _second_series(order: int, sign: int) -> list[float]:
    """The series beside the logarithm in functions of the second kind: the one above times H(k) + H(k + n)."""
    return [c * (_harmonic(k) + _harmonic(k + order)) for k, c in enumerate(_series(order, sign))]


def _hankel(order: int, terms: int) -> list[float]:
    """a(k) = (4n² - 1)(4n² - 9) ... (4n² - (2k - 1)²) / (k! 8^k)."""
    result = [1.0]
    for k in range(1, terms):
        result.append(result[-1] * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k))
    return result


# ---------------------------------------------------------------- I and K, the modified ones


def _scaled_i(x: Tensor, order: int) -> Tensor:
    """exp(-x) I(x) of x >= 0."""
    near = torch.clamp(x, max=_FAR)
    half = near * 0.5
    series = _scaled(half * half, _series(order, 1), _FAR**2 / 4) * torch.exp(-near)
    if order == 1:
        series = series * half
    far = torch.clamp(x, min=_FAR)
    terms = [(-1) ** k * a for k, a in enumerate(_hankel(order, 20))]
    return torch.where(x < _FAR, series, polynomial(1 / far, terms) / torch.sqrt(2 * math.pi * far))


def _scaled_k(x: Tensor, order: int) -> Tensor:
    """exp(x) K(x) of x > 0; infinite at 0, NaN below."""
    near = torch.clamp(x, max=_FAR_K)
    half = near * 0.5
    square, logarithm = half * half, torch.log(half) + _EULER
    first = logarithm * _scaled(square, _series(order, 1), _FAR_K**2 / 4)
    second = _scaled(square, [c * 0.5 for c in _second_series(order, 1)], _FAR_K**2 / 4)
    series = second - first if order == 0 else 1 / near + half * (first - second)
    far = torch.clamp(x, min=_FAR_K)
    expansion = polynomial(1 / far, _hankel(order, 18)) * torch.sqrt(math.pi / (2 * far))
    result = torch.where(x < _FAR_K, series * torch.exp(near), expansion)
    return torch.where(x == 0, torch.inf, result)


@decomposes(aten.i0.default, aten.special_i0.default, aten.special_modified_bessel_i0.default)
def i0(self: Tensor) -> Tensor:
    """The modified Bessel function of the first kind of order 0."""
    x, dtype = doubled(self)
    magnitude = torch.abs(x)
    return (_scaled_i(magnitude, 0) * torch.exp(magnitude)).to(dtype)


@decomposes(aten.special_i0e.default)
def special_i0e(self: Tensor) -> Tensor:
    """exp(-|self|) I0(self)."""
    x, dtype = doubled(self)
    return _scaled_i(torch.abs(x), 0).to(dtype)


@decomposes(aten.special_i1.default, aten.special_modified_bessel_i1.default)
def special_i1(self: Tensor) -> Tensor:
    """The modified Bessel function of the first kind of order 1, which is odd."""
    x, dtype = doubled(self)
    magnitude = torch.abs(x)
    return (_scaled_i(magnitude, 1) * torch.exp(magnitude) * torch.sign(x)).to(dtype)


@decomposes(aten.special_i1e.default)
def special_i1e(self: Tensor) -> Tensor:
    """exp(-|self|) I1(self)."""
    x, dtype = doubled(self)
    return (_scaled_i(torch.abs(x), 1) * torch.sign(x)).to(dtype)


@decomposes(aten.special_modified_bessel_k0.default)
def special_modified_bessel_k0(self: Tensor) -> Tensor:
    """The modified Bessel function of the second kind of order 0."""
    x, dtype = doubled(self)
    return (_scaled_k(x, 0) * torch.exp(-x)).to(dtype)


@decomposes(aten.special_modified_bessel_k1.default)
def special_modified_bessel_k1(self: Tensor) -> Tensor:
    """The modified Bessel function of the second kind of order 1."""
    x, dtype = doubled(self)
    return (_scaled_k(x, 1) * torch.exp(-x)).to(dtype)


@decomposes(aten.special_scaled_modified_bessel_k0.default)
def special_scaled_modified_bessel_k0(x: Tensor) -> Tensor:
    """exp(x) K0(x)."""
    value, dtype = doubled(x)
    return _scaled_k(value, 0).to(dtype)


@decomposes(aten.special_scaled_modified_bessel_k1.default)
def special_scaled_modified_bessel_k1(x: Tensor) -> Tensor:
    """exp(x) K1(x)."""
    value, dtype = doubled(x)
    return _scaled_k(value, 1).to(dtype)


# ---------------------------------------------------------------- J and Y


def _far_wave(x: Tensor, order: int) -> tuple[Tensor, Tensor]:
    """J and Y of large x: sqrt(2 / (pi x)) times P and Q turned by the phase x - (2n + 1) pi / 4."""
    terms = _hankel(order, 16)
    inverse = 1 / x
    square = inverse * inverse
    p = polynomial(square, [(-1) ** k * a for k, a in enumerate(terms[0::2])])
    q = polynomial(square, [(-1) ** k * a for k, a in enumerate(terms[1::2])]) * inverse
    phase = x - (2 * order + 1) * math.pi / 4
    cosine, sine, scale = torch.cos(phase), torch.sin(phase), torch.sqrt(inverse * (2 / math.pi))
    return scale * (p * cosine - q * sine), scale * (p * sine + q * cosine)


def _near_j(x: Tensor, order: int) -> Tensor:
    half = x * 0.5
    series = _scaled(half * half, _series(order, -1), _FAR**2 / 4)
    return series * half if order == 1 else series


def _bessel_j(self: Tensor, order: int) -> Tensor:
    x, dtype = doubled(self)
    magnitude = torch.abs(x)
    far = _far_wave(torch.clamp(magnitude, min=_FAR), order)[0]
    result = torch.where(magnitude < _FAR, _near_j(torch.clamp(magnitude, max=_FAR), order), far)
    result = torch.where(magnitude == torch.inf, 0.0, result)
    return (result * torch.sign(x) if order == 1 else result).to(dtype)


def _bessel_y(self: Tensor, order: int) -> Tensor:
    x, dtype = doubled(self)
    near = torch.clamp(x, max=_FAR)
    half = near * 0.5
    series = _scaled(half * half, [c * 0.5 for c in _second_series(order, -1)], _FAR**2 / 4)
    if order == 1:
        series = series * half + 1 / near
    close = (2 / math.pi) * ((torch.log(half) + _EULER) * _near_j(near, order) - series)
    far = torch.where(x == torch.inf, 0.0, _far_wave(torch.clamp(x, min=_FAR), order)[1])
    result = torch.where(x < _FAR, close, far)
    return torch.where(x == 0, -torch.inf, result).to(dtype)


@decomposes(aten.special_bessel_j0.default)
def special_bessel_j0(self: Tensor) -> Tensor:
    """The Bessel function of the first kind of order 0."""
    return _bessel_j(self, 0)


@decomposes(aten.special_bessel_j1.default)
def special_bessel_j1(self: Tensor) -> Tensor:
    """The Bessel function of the first kind of order 1, which is odd."""
    return _bessel_j(self, 1)


@decomposes(aten.special_bessel_y0.default)
def special_bessel_y0(self: Tensor) -> Tensor:
    """The Bessel function of the second kind of order 0; NaN below 0."""
    return _bessel_y(self, 0)


@decomposes(aten.special_bessel_y1.default)
def special_bessel_y1(self: Tensor) -> Tensor:
    """The Bessel function of the second kind of order 1; NaN below 0."""
    return _bessel_y(self, 1)


@decomposes(aten.special_spherical_bessel_j0.default)
def special_spherical_bessel_j0(x: Tensor) -> Tensor:
    """sin(x) / x, 1 at 0 and 0 at the infinities."""
    value, dtype = doubled(x)
    result = torch.where(value == 0, 1.0, torch.sin(value) / value)
    return torch.where(torch.abs(value) == torch.inf, 0.0, result).to(dtype)


# ---------------------------------------------------------------- Airy's function

_AIRY_NEAR, _AIRY_FAR = -7.5, 5.8  # between them the series, of error 2e-8 and better
_AI_0 = 3 ** (-2 / 3) / math.gamma(2 / 3)
_AI_1 = -(3 ** (-1 / 3)) / math.gamma(1 / 3)


def _airy_series() -> tuple[list[float], list[float]]:
    """The coefficients in x³ of the two solutions of y'' = x y."""
    even, odd = [1.0], [1.0]
    for k in range(1, 45):
        even.append(even[-1] / ((3 * k - 1) * (3 * k)))
        odd.append(odd[-1] / ((3 * k) * (3 * k + 1)))
    return even, odd


def _airy_expansion(terms: int) -> list[float]:
    """u(k) = (6k - 5)(6k - 3)(6k - 1) / (216 k (2k - 1)) u(k - 1)."""
    result = [1.0]
    for k in range(1, terms):
        result.append(result[-1] * (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / (216 * k * (2 * k - 1)))
    return result


@decomposes(aten.special_airy_ai.default)
def special_airy_ai(x: Tensor) -> Tensor:
    """Airy's function Ai."""
    value, dtype = doubled(x)
    middle = torch.clamp(value, _AIRY_NEAR, _AIRY_FAR)
    cube = middle * middle * middle
    even, odd = _airy_series()
    limit = -(_AIRY_NEAR**3)
    series = _AI_0 * _scaled(cube, even, limit) + _AI_1 * middle * _scaled(cube, odd, limit)

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
