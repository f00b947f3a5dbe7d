"""Complex decompositions of arithmetic and functions against torch."""

import math

import pytest
import torch
from torch import Tensor

from tests.complex_tensors.harness import assert_complex_matches_torch
from tests.decompositions.harness import complex_randn

aten = torch.ops.aten


UNARY = [
    "abs",
    "angle",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "square",
    "conj",
    "sin",
    "cos",
    "tan",
    "sinh",
    "cosh",
    "tanh",
    "asin",
    "acos",
    "atan",
    "asinh",
    "acosh",
    "atanh",
    "sigmoid",
    "silu",
    "sgn",
    "sinc",
    "real",
    "imag",
    "isnan",
    "isinf",
    "isfinite",
    "isreal",
]


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("scale", [0.01, 1.0, 20.0])
def test_functions(name: str, scale: float) -> None:
    assert_complex_matches_torch(getattr(aten, name).default, complex_randn(40, scale=scale))


@pytest.mark.parametrize("name", ["sqrt", "log", "abs", "sgn", "tanh", "sigmoid"])
def test_points_on_the_axes(name: str) -> None:
    points = [0j, 1 + 0j, -1 + 0j, 1j, -1j, 3 - 4j, complex(-1.0, -0.0)]
    values = points if name != "log" else points[1:]
    assert_complex_matches_torch(getattr(aten, name).default, torch.tensor(values, dtype=torch.complex128))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "eq", "ne"])
@pytest.mark.parametrize(
    "other", [complex_randn(3), complex_randn(2, 1), complex_randn(3).real, torch.tensor(2.0)], ids=str
)
def test_arithmetic_of_tensors(name: str, other: Tensor) -> None:
    target = aten.pow.Tensor_Tensor if name == "pow" else getattr(aten, name).Tensor
    assert_complex_matches_torch(target, complex_randn(2, 3), other)
    if not other.is_complex() and other.dim():
        assert_complex_matches_torch(target, other, complex_randn(2, 3))


@pytest.mark.parametrize("other", [2, 0.5, 1 - 2j, 1j])
def test_arithmetic_of_numbers(other: complex) -> None:
    for name in ("add", "sub", "mul", "div", "rsub", "eq", "ne"):
        assert_complex_matches_torch(getattr(aten, name).Scalar, complex_randn(3), other)
    assert_complex_matches_torch(aten.pow.Scalar, other, complex_randn(3))
    assert_complex_matches_torch(aten.add.Tensor, complex_randn(3), complex_randn(3), alpha=other)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 1.5, 5, 1 + 1j])
def test_powers(exponent: complex) -> None:
    assert_complex_matches_torch(aten.pow.Tensor_Scalar, complex_randn(5), exponent)


def test_powers_of_zero() -> None:
    zero = torch.zeros(2, dtype=torch.complex128)
    assert_complex_matches_torch(aten.pow.Tensor_Tensor, zero, torch.tensor([2, 1.5], dtype=torch.complex128))


def test_creation_and_views() -> None:
    assert_complex_matches_torch(aten.polar.default, torch.tensor([1.0, 2.0]), torch.tensor([0.3, math.pi]))
    assert_complex_matches_torch(aten.complex.default, torch.randn(2, 3), torch.randn(3))
    assert_complex_matches_torch(aten.view_as_complex.default, torch.randn(2, 2))
    assert_complex_matches_torch(aten.view_as_real.default, complex_randn(2, 3))


def test_sums_of_large_exponentials() -> None:
    big = torch.full((3,), 1e4, dtype=torch.complex64)
    assert_complex_matches_torch(aten.logsumexp.default, big, [0])
    assert_complex_matches_torch(aten.logcumsumexp.default, big, 0)
