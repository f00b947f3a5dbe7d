"""Orthogonal polynomials, each as one Loop over its three-term recurrence, and polynomials with constant coefficients.

Other special functions are decomposed.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter, Operand
from fx_onnx.translations._loop_node import emit_loop


class _Family(NamedTuple):
    """Polynomials with p(0) = 1, p(1) = slope * x + offset, and a step from p(k - 1) and p(k) to p(k + 1).

    ``shifted`` polynomials are evaluated at 2x - 1.
    """

    slope: float
    offset: float
    step: Callable[[Emitter, Value, Value, Value, Value], Value]
    shifted: bool = False


def _chebyshev(op: Emitter, x: Value, k: Value, before: Value, current: Value) -> Value:
    """Emits 2 x p(k) - p(k - 1)."""
    return op.Sub(op.Mul(op.Add(x, x), current), before)


def _hermite_h(op: Emitter, x: Value, k: Value, before: Value, current: Value) -> Value:
    """Emits 2 (x p(k) - k p(k - 1))."""
    half = op.Sub(op.Mul(x, current), op.Mul(k, before))
    return op.Add(half, half)


def _hermite_he(op: Emitter, x: Value, k: Value, before: Value, current: Value) -> Value:
    """Emits x p(k) - k p(k - 1)."""
    return op.Sub(op.Mul(x, current), op.Mul(k, before))


def _laguerre(op: Emitter, x: Value, k: Value, before: Value, current: Value) -> Value:
    """Emits ((2k + 1 - x) p(k) - k p(k - 1)) / (k + 1)."""
    after = op.Add(k, 1)
    return op.Div(op.Sub(op.Mul(op.Sub(op.Add(k, after), x), current), op.Mul(k, before)), after)


def _legendre(op: Emitter, x: Value, k: Value, before: Value, current: Value) -> Value:
    """Emits ((2k + 1) x p(k) - k p(k - 1)) / (k + 1)."""
    after = op.Add(k, 1)
    return op.Div(op.Sub(op.Mul(op.Mul(op.Add(k, after), x), current), op.Mul(k, before)), after)


_FAMILIES: dict[Any, _Family] = {
    aten.special_chebyshev_polynomial_t: _Family(1, 0, _chebyshev),
    aten.special_chebyshev_polynomial_u: _Family(2, 0, _chebyshev),
    aten.special_chebyshev_polynomial_v: _Family(2, -1, _chebyshev),
    aten.special_chebyshev_polynomial_w: _Family(2, 1, _chebyshev),
    aten.special_shifted_chebyshev_polynomial_t: _Family(1, 0, _chebyshev, shifted=True),
    aten.special_shifted_chebyshev_polynomial_u: _Family(2, 0, _chebyshev, shifted=True),
    aten.special_shifted_chebyshev_polynomial_v: _Family(2, -1, _chebyshev, shifted=True),
    aten.special_shifted_chebyshev_polynomial_w: _Family(2, 1, _chebyshev, shifted=True),
    aten.special_hermite_polynomial_h: _Family(2, 0, _hermite_h),
    aten.special_hermite_polynomial_he: _Family(1, 0, _hermite_he),
    aten.special_laguerre_polynomial_l: _Family(-1, 1, _laguerre),
    aten.special_legendre_polynomial_p: _Family(1, 0, _legendre),
}


def _polynomial(family: _Family) -> Callable[[Emitter, Operand, Operand], Value]:
    def aten_orthogonal_polynomial(op: Emitter, x: Operand, n: Operand) -> Value:
        """Emits a Loop for the polynomial of degree n at x; n is truncated to an integer, and a negative n gives 0."""
        return _evaluate(op, family, x, n)

    return aten_orthogonal_polynomial


for _packet, _row in _FAMILIES.items():
    translates(_packet.default, _packet.x_scalar, _packet.n_scalar)(_polynomial(_row))


def _evaluate(op: Emitter, family: _Family, x: Operand, n: Operand) -> Value:
    """Emits a Loop up to the largest degree; each element keeps the polynomial of its own degree."""
    dtype = op.out_dtype
    degree = op.cast(n, DataType.INT64)
    variable = op.cast(x, dtype)
    if family.shifted:
        variable = op.Sub(op.Add(variable, variable), 1)
    variable = op.Expand(variable, op.shape(op.out_sizes))
    first = op.Mul(variable, family.slope) if family.slope != 1 else op.Identity(variable)
    first = op.Add(first, family.offset) if family.offset else first
    one, zero = op.cast(1, dtype), op.cast(0, dtype)
    ones = op.Expand(one, op.shape(op.out_sizes))
    start = op.Where(op.Equal(degree, 0), one, op.Where(op.Equal(degree, 1), first, zero))

    def step(inner: Emitter, iteration: Value, before: Value, current: Value, result: Value) -> tuple[Value, ...]:
        k = inner.Add(iteration, 1)
        after = family.step(inner, variable, inner.cast(k, dtype), before, current)
        return current, after, inner.Where(inner.Equal(degree, inner.Add(k, 1)), after, result)

    degrees = op.Concat(op.Reshape(degree, [-1]), [1], axis=0)  # an empty tensor has no maximum
    rounds = op.Sub(op.ReduceMax(degrees, keepdims=0), 1)
    result: Value = emit_loop(op, step, ones, first, start, rounds=rounds)[-1]
    return result


@translates("fx_onnx::polynomial")
def fx_onnx_polynomial(op: Emitter, x: Value, coefficients: Sequence[float]) -> Value:
    """Emits a Mul and an Add for each power: c[0] + c[1] x + c[2] x² + ..."""
    if len(coefficients) == 1:
        return op.Expand(op.cast(coefficients[0], op.out_dtype), op.shape(op.out_sizes))
    *lower, before, highest = coefficients
    result = op.Add(op.Mul(x, highest) if highest != 1 else x, before)
    for coefficient in reversed(lower):
        result = op.Mul(result, x)
        result = op.Add(result, coefficient) if coefficient else result
    return result
