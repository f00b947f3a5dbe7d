"""Decompositions of arithmetic and functions of complex numbers z = a + ib into real arithmetic on a and b."""

import math

import torch
from torch import Tensor

from fx_onnx.decompositions._torch_private import statically_known_true
from fx_onnx.decompositions.registry import Complex, Operand, aten, complex_decomposes

Part = Tensor | float


def parts(x: Operand) -> tuple[Part, Part | None]:
    """Returns the real and the imaginary part of an operand; the imaginary part of a real one is None."""
    if isinstance(x, Complex):
        return x
    if isinstance(x, complex):
        return x.real, x.imag or None
    return x, None


def real_part(x: Operand) -> Tensor:
    """Returns the real part of a tensor."""
    return x.real if isinstance(x, Complex) else x  # type: ignore[return-value]


def as_complex(x: Operand, like: Operand | None = None) -> Complex:
    """Returns any operand as a pair of tensors; a number takes the dtype of ``like``."""
    if isinstance(x, Complex):
        return x
    if isinstance(x, Tensor):
        return Complex(x, torch.zeros_like(x))
    model = real_part(x if like is None else like)
    return Complex(model.new_full((), complex(x).real), model.new_full((), complex(x).imag))


def _have_equal_shapes(x: Tensor, y: Tensor) -> bool:
    """Returns whether the shapes are known to be equal, without adding a guard."""
    return x.dim() == y.dim() and all(statically_known_true(m == n) for m, n in zip(x.shape, y.shape, strict=True))


def broadcast_parts(real: Part, imag: Part) -> Complex:
    """Returns the parts, at least one of which is a tensor, broadcast to a common shape."""
    first = real if isinstance(real, Tensor) else torch.full_like(imag, real)  # type: ignore[arg-type]
    second = imag if isinstance(imag, Tensor) else torch.full_like(first, imag)
    if not _have_equal_shapes(first, second):
        first, second = torch.broadcast_tensors(first, second)
    return Complex(first, second)


# ---------------------------------------------------------------- arithmetic


def add(x: Operand, y: Operand) -> Complex:
    """Returns x + y."""
    (a, b), (c, d) = parts(x), parts(y)
    imag = d if b is None else b if d is None else b + d
    return broadcast_parts(a + c, 0.0 if imag is None else imag)


def negative(z: Operand) -> Operand:
    """Returns -z."""
    return Complex(-z.real, -z.imag) if isinstance(z, Complex) else -z


def mul(x: Operand, y: Operand) -> Complex:
    """Returns x * y = (ac - bd) + i(ad + bc)."""
    (a, b), (c, d) = parts(x), parts(y)
    if b is None:
        return broadcast_parts(a * c, 0.0 if d is None else a * d)
    if d is None:
        return broadcast_parts(a * c, b * c)
    return broadcast_parts(a * c - b * d, a * d + b * c)


def norm_squared(z: Complex) -> Tensor:
    """Returns |z|² = a² + b²."""
    return z.real * z.real + z.imag * z.imag


def magnitude(z: Complex) -> Tensor:
    """Returns |z|."""
    return torch.sqrt(norm_squared(z))


def conjugate(z: Complex) -> Complex:
    """Returns a - ib."""
    return Complex(z.real, -z.imag)


def inverse(z: Complex) -> Complex:
    """Returns 1 / z = (a - ib) / |z|²."""
    squared = norm_squared(z)
    return Complex(z.real / squared, -z.imag / squared)


def div(x: Operand, y: Operand) -> Complex:
    """Returns x / y = x ȳ / |y|²."""
    if isinstance(y, complex):
        return mul(x, 1 / y)
    if isinstance(y, Complex):
        squared = norm_squared(y)
        product = mul(x, conjugate(y))
        return Complex(product.real / squared, product.imag / squared)
    a, b = parts(x)
    return broadcast_parts(a / y, 0.0 if b is None else b / y)


@complex_decomposes(aten.add.Tensor, aten.add.Scalar)
def _add(self: Operand, other: Operand, alpha: complex = 1) -> Complex:
    """Returns self + alpha * other."""
    return add(self, other if alpha == 1 else mul(other, alpha))


@complex_decomposes(aten.sub.Tensor, aten.sub.Scalar, aten.subtract.Tensor, aten.subtract.Scalar)
def _sub(self: Operand, other: Operand, alpha: complex = 1) -> Complex:
    """Returns self - alpha * other."""
    (a, b), (c, d) = parts(self), parts(other if alpha == 1 else mul(other, alpha))
    if b is None:
        return broadcast_parts(a - c, 0.0 if d is None else -d)
    return broadcast_parts(a - c, b if d is None else b - d)


@complex_decomposes(aten.rsub.Tensor, aten.rsub.Scalar)
def _rsub(self: Operand, other: Operand, alpha: complex = 1) -> Complex:
    """Returns other - alpha * self."""
    return _sub(other, self, alpha)


@complex_decomposes(aten.mul.Tensor, aten.mul.Scalar, aten.multiply.Tensor, aten.multiply.Scalar)
def _mul(self: Operand, other: Operand) -> Complex:
    """Returns self * other."""
    return mul(self, other)


@complex_decomposes(
    aten.div.Tensor, aten.div.Scalar, aten.divide.Tensor, aten.divide.Scalar,
    aten.true_divide.Tensor, aten.true_divide.Scalar,
)  # fmt: skip
def _div(self: Operand, other: Operand) -> Complex:
    """Returns self / other."""
    return div(self, other)


@complex_decomposes(aten.reciprocal)
def reciprocal(self: Complex) -> Complex:
    """Returns 1 / self."""
    return inverse(self)


@complex_decomposes(aten.square)
def square(self: Complex) -> Complex:
    """Returns self²."""
    return mul(self, self)


@complex_decomposes(aten.conj, aten._conj, aten.conj_physical, aten._conj_physical)
def conj(self: Complex) -> Complex:
    """Returns a - ib."""
    return conjugate(self)


# ---------------------------------------------------------------- parts


@complex_decomposes(aten.real)
def real(self: Operand) -> Operand:
    """Returns a."""
    return parts(self)[0]


@complex_decomposes(aten.imag)
def imag(self: Complex) -> Tensor:
    """Returns b."""
    return self.imag


@complex_decomposes(aten.abs, aten.absolute)
def absolute(self: Complex) -> Tensor:
    """Returns |z|."""
    return magnitude(self)


@complex_decomposes(aten.angle)
def angle(self: Complex) -> Tensor:
    """Returns the angle between z and the positive real axis."""
    return torch.atan2(self.imag, self.real)


@complex_decomposes(aten.view_as_real, aten.view_as_real_copy)
def view_as_real(self: Complex) -> Tensor:
    """Returns both parts, stacked along a new last axis."""
    return torch.stack((self.real, self.imag), -1)


@complex_decomposes(aten.view_as_complex, aten.view_as_complex_copy)
def view_as_complex(self: Tensor) -> Complex:
    """Returns the complex tensor whose parts are stacked along the last axis."""
    return Complex(self.select(-1, 0), self.select(-1, 1))


@complex_decomposes(aten.complex)
def make_complex(real: Tensor, imag: Tensor) -> Complex:
    """Returns real + i imag."""
    return broadcast_parts(real, imag)


@complex_decomposes(aten.polar)
def polar(abs: Tensor, angle: Tensor) -> Complex:
    """Returns abs * exp(i angle)."""
    return Complex(abs * torch.cos(angle), abs * torch.sin(angle))


@complex_decomposes(aten.sgn)
def sgn(self: Complex) -> Complex:
    """Returns z / |z|, which is 0 at 0."""
    size = magnitude(self)
    size = torch.where(size == 0, 1.0, size)
    return Complex(self.real / size, self.imag / size)


# ---------------------------------------------------------------- exponentials and logarithms


def exp(z: Complex) -> Complex:
    """Returns e^z = eᵃ (cos b + i sin b)."""
    size = torch.exp(z.real)
    return Complex(size * torch.cos(z.imag), size * torch.sin(z.imag))


def log(z: Complex) -> Complex:
    """Returns log z = log |z| + i angle."""
    return Complex(torch.log(magnitude(z)), torch.atan2(z.imag, z.real))


@complex_decomposes(aten.exp)
def _exp(self: Complex) -> Complex:
    """Returns e^z."""
    return exp(self)


@complex_decomposes(aten.exp2)
def exp2(self: Complex) -> Complex:
    """Returns 2^z."""
    return exp(mul(self, math.log(2)))


@complex_decomposes(aten.expm1)
def expm1(self: Complex) -> Complex:
    """Returns e^z - 1; the real part is (eᵃ - 1) cos b - 2 sin²(b / 2), which is accurate near 0."""
    half = torch.sin(self.imag / 2)
    real = torch.expm1(self.real) * torch.cos(self.imag) - 2 * half * half
    return Complex(real, torch.exp(self.real) * torch.sin(self.imag))


@complex_decomposes(aten.log)
def _log(self: Complex) -> Complex:
    """Returns log z."""
    return log(self)


@complex_decomposes(aten.log2)
def log2(self: Complex) -> Complex:
    """Returns log z / log 2."""
    return mul(log(self), 1 / math.log(2))


@complex_decomposes(aten.log10)
def log10(self: Complex) -> Complex:
    """Returns log z / log 10."""
    return mul(log(self), 1 / math.log(10))


@complex_decomposes(aten.log1p)
def log1p(self: Complex) -> Complex:
    """Returns log(1 + z), from |1 + z|² = 1 + a(a + 2) + b², which is accurate near 0."""
    real = torch.log1p(self.real * (self.real + 2) + self.imag * self.imag) / 2
    return Complex(real, torch.atan2(self.imag, self.real + 1))


def sqrt(z: Complex) -> Complex:
    """Returns the square root whose real part is not negative.

    The part with the larger magnitude is computed from |z| and a. The other part follows from b, which is twice the
    product of both parts.
    """
    larger = torch.sqrt((magnitude(z) + z.real.abs()) / 2)
    smaller = z.imag.abs() / torch.where(larger == 0, 1.0, 2 * larger)
    right = z.real >= 0
    imag = torch.copysign(torch.where(right, smaller, larger), z.imag)
    return Complex(torch.where(right, larger, smaller), imag)


@complex_decomposes(aten.sqrt)
def _sqrt(self: Complex) -> Complex:
    """Returns √z."""
    return sqrt(self)


@complex_decomposes(aten.rsqrt)
def rsqrt(self: Complex) -> Complex:
    """Returns 1 / √z."""
    return inverse(sqrt(self))


def power(base: Operand, exponent: Operand) -> Complex:
    """Returns exp(exponent * log(base)); a base of 0 gives 0, or 1 for the exponent 0."""
    z = as_complex(base, exponent)
    zero = (z.real == 0) & (z.imag == 0)
    safe = Complex(torch.where(zero, 1.0, z.real), z.imag)
    result = exp(mul(log(safe), exponent))
    if isinstance(exponent, (Tensor, Complex)):
        w = as_complex(exponent)
        at_zero = ((w.real == 0) & (w.imag == 0)).to(result.real.dtype)
    else:
        at_zero = torch.full_like(result.real, 1.0 if exponent == 0 else 0.0)
    return Complex(torch.where(zero, at_zero, result.real), torch.where(zero, 0.0, result.imag))


@complex_decomposes(aten.pow.Tensor_Scalar)
def pow_scalar(self: Operand, exponent: complex) -> Complex:
    """Returns self ** exponent, by products and roots for small exponents."""
    z = as_complex(self)
    if exponent == 0:
        return Complex(torch.ones_like(z.real), torch.zeros_like(z.real))
    if exponent == 1:
        return z
    if exponent in (0.5, -0.5):
        return sqrt(z) if exponent == 0.5 else inverse(sqrt(z))
    if exponent == -1:
        return inverse(z)
    if exponent in (2, 3, 4, -2):
        squared = mul(z, z)
        if exponent == -2:
            return inverse(squared)
        if exponent == 2:
            return squared
        return mul(squared, z if exponent == 3 else squared)
    return power(z, exponent)


@complex_decomposes(aten.pow.Scalar)
def pow_of_scalar(self: complex, exponent: Complex | Tensor) -> Complex:
    """Returns self ** exponent."""
    return power(self, exponent)


@complex_decomposes(aten.pow.Tensor_Tensor)
def pow_tensor(self: Complex | Tensor, exponent: Complex | Tensor) -> Complex:
    """Returns self ** exponent."""
    return broadcast_parts(*power(self, exponent))


@complex_decomposes(aten.sigmoid)
def sigmoid(self: Complex) -> Complex:
    """Returns 1 / (1 + e^-z) = (1 + tanh(z / 2)) / 2, which does not overflow."""
    half = tanh(Complex(self.real / 2, self.imag / 2))
    return Complex((1 + half.real) / 2, half.imag / 2)


@complex_decomposes(aten.silu)
def silu(self: Complex) -> Complex:
    """Returns z sigmoid(z)."""
    return mul(self, sigmoid(self))


# ---------------------------------------------------------------- trigonometric and hyperbolic functions


def _times_i(z: Complex) -> Complex:
    """Returns iz."""
    return Complex(-z.imag, z.real)


def _over_i(z: Complex) -> Complex:
    """Returns z / i."""
    return Complex(z.imag, -z.real)


@complex_decomposes(aten.sin)
def sin(self: Complex) -> Complex:
    """Returns sin z = sin a cosh b + i cos a sinh b."""
    return Complex(torch.sin(self.real) * torch.cosh(self.imag), torch.cos(self.real) * torch.sinh(self.imag))


@complex_decomposes(aten.cos)
def cos(self: Complex) -> Complex:
    """Returns cos z = cos a cosh b - i sin a sinh b."""
    return Complex(torch.cos(self.real) * torch.cosh(self.imag), -torch.sin(self.real) * torch.sinh(self.imag))


@complex_decomposes(aten.sinh)
def sinh(self: Complex) -> Complex:
    """Returns sinh z = sinh a cos b + i cosh a sin b."""
    return Complex(torch.sinh(self.real) * torch.cos(self.imag), torch.cosh(self.real) * torch.sin(self.imag))


@complex_decomposes(aten.cosh)
def cosh(self: Complex) -> Complex:
    """Returns cosh z = cosh a cos b + i sinh a sin b."""
    return Complex(torch.cosh(self.real) * torch.cos(self.imag), torch.sinh(self.real) * torch.sin(self.imag))


def tanh(z: Complex) -> Complex:
    """Returns tanh z = (t + i sin b cos b (1 - t²)) / (cos² b + t² sin² b), where t = tanh a.

    This form does not overflow.
    """
    t, c, s = torch.tanh(z.real), torch.cos(z.imag), torch.sin(z.imag)
    squared = t * t
    divisor = c * c + squared * s * s
    return Complex(t / divisor, s * c * (1 - squared) / divisor)


@complex_decomposes(aten.tanh)
def _tanh(self: Complex) -> Complex:
    """Returns tanh z."""
    return tanh(self)


@complex_decomposes(aten.tan)
def tan(self: Complex) -> Complex:
    """Returns tan z = tanh(iz) / i."""
    return _over_i(tanh(_times_i(self)))


def asin(z: Complex) -> Complex:
    """Returns asin z.

    Source: Kahan, Branch Cuts for Complex Elementary Functions, 1987.
    """
    minus, plus = sqrt(Complex(1 - z.real, -z.imag)), sqrt(Complex(1 + z.real, z.imag))
    real = torch.atan2(z.real, minus.real * plus.real - minus.imag * plus.imag)
    return Complex(real, torch.asinh(minus.real * plus.imag - minus.imag * plus.real))


@complex_decomposes(aten.asin, aten.arcsin)
def _asin(self: Complex) -> Complex:
    """Returns asin z."""
    return asin(self)


@complex_decomposes(aten.asinh, aten.arcsinh)
def asinh(self: Complex) -> Complex:
    """Returns asinh z = asin(iz) / i."""
    return _over_i(asin(_times_i(self)))


@complex_decomposes(aten.acos, aten.arccos)
def acos(self: Complex) -> Complex:
    """Returns acos z.

    Source: Kahan, Branch Cuts for Complex Elementary Functions, 1987.
    """
    minus, plus = sqrt(Complex(1 - self.real, -self.imag)), sqrt(Complex(1 + self.real, self.imag))
    imag = torch.asinh(plus.real * minus.imag - plus.imag * minus.real)
    return Complex(2 * torch.atan2(minus.real, plus.real), imag)


@complex_decomposes(aten.acosh, aten.arccosh)
def acosh(self: Complex) -> Complex:
    """Returns acosh z.

    Source: Kahan, Branch Cuts for Complex Elementary Functions, 1987.
    """
    minus, plus = sqrt(Complex(self.real - 1, self.imag)), sqrt(Complex(self.real + 1, self.imag))
    real = torch.asinh(minus.real * plus.real + minus.imag * plus.imag)
    return Complex(real, 2 * torch.atan2(minus.imag, plus.real))


def atanh(z: Complex) -> Complex:
    """Returns atanh z = log1p(4a / ((1 - a)² + b²)) / 4 + i atan2(2b, (1 - a)(1 + a) - b²) / 2."""
    left, squared = 1 - z.real, z.imag * z.imag
    real = torch.log1p(4 * z.real / (left * left + squared)) / 4
    return Complex(real, torch.atan2(2 * z.imag, left * (1 + z.real) - squared) / 2)


@complex_decomposes(aten.atanh, aten.arctanh)
def _atanh(self: Complex) -> Complex:
    """Returns atanh z."""
    return atanh(self)


@complex_decomposes(aten.atan, aten.arctan)
def atan(self: Complex) -> Complex:
    """Returns atan z = atanh(iz) / i."""
    return _over_i(atanh(_times_i(self)))


@complex_decomposes(aten.sinc)
def sinc(self: Complex) -> Complex:
    """Returns sin(πz) / πz, which is 1 at 0."""
    scaled = Complex(self.real * math.pi, self.imag * math.pi)
    zero = (self.real == 0) & (self.imag == 0)
    quotient = div(sin(scaled), Complex(torch.where(zero, 1.0, scaled.real), scaled.imag))
    return Complex(torch.where(zero, 1.0, quotient.real), torch.where(zero, 0.0, quotient.imag))
