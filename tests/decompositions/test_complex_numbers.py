"""Functions of pairs against torch's complex numbers."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import fx_onnx.core.custom_ops  # noqa: F401
from fx_onnx.decompositions.registry import COMPLEX, Complex
from tests.compare import assert_close

aten = torch.ops.aten


def pair(z: Any) -> Any:
    """What stands for a value: of a complex tensor its parts."""
    if isinstance(z, Tensor) and z.is_complex():
        z = z.resolve_conj()
        return Complex(z.real.clone(), z.imag.clone())
    return z


def joined(result: Any) -> Any:
    """The complex tensor of a pair."""
    if isinstance(result, Complex):
        return torch.complex(result.real, result.imag)
    return [joined(item) for item in result] if isinstance(result, (list, tuple)) else result


def same(target: Any, *args: Any, **kwargs: Any) -> None:
    """Raises AssertionError where the function of pairs differs from the operator."""
    function: Callable[..., Any] = COMPLEX.get(target) or COMPLEX[target.overloadpacket]
    found = joined(function(*map(pair, args), **{key: pair(value) for key, value in kwargs.items()}))
    assert_close(found, pytree.tree_map_only(Tensor, Tensor.resolve_conj, target(*args, **kwargs)))


def numbers(*shape: int, scale: float = 2.0, dtype: torch.dtype = torch.complex128) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0)) * scale


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
    same(getattr(aten, name).default, numbers(40, scale=scale))


@pytest.mark.parametrize("name", ["sqrt", "log", "abs", "sgn", "tanh", "sigmoid"])
def test_axes_and_zero(name: str) -> None:
    points = [0j, 1 + 0j, -1 + 0j, 1j, -1j, 3 - 4j, complex(-1.0, -0.0)]
    values = points if name != "log" else points[1:]
    same(getattr(aten, name).default, torch.tensor(values, dtype=torch.complex128))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "eq", "ne"])
@pytest.mark.parametrize("other", [numbers(3), numbers(2, 1), numbers(3).real, torch.tensor(2.0)], ids=str)
def test_arithmetic_of_tensors(name: str, other: Tensor) -> None:
    target = aten.pow.Tensor_Tensor if name == "pow" else getattr(aten, name).Tensor
    same(target, numbers(2, 3), other)
    if not other.is_complex() and other.dim():
        same(target, other, numbers(2, 3))


@pytest.mark.parametrize("other", [2, 0.5, 1 - 2j, 1j])
def test_arithmetic_of_numbers(other: complex) -> None:
    for name in ("add", "sub", "mul", "div", "rsub", "eq", "ne"):
        same(getattr(aten, name).Scalar, numbers(3), other)
    same(aten.pow.Scalar, other, numbers(3))
    same(aten.add.Tensor, numbers(3), numbers(3), alpha=other)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 1.5, 5, 1 + 1j])
def test_powers(exponent: complex) -> None:
    same(aten.pow.Tensor_Scalar, numbers(5), exponent)


def test_powers_of_zero() -> None:
    zero = torch.zeros(2, dtype=torch.complex128)
    same(aten.pow.Tensor_Tensor, zero, torch.tensor([2, 1.5], dtype=torch.complex128))


def test_making() -> None:
    same(aten.polar.default, torch.tensor([1.0, 2.0]), torch.tensor([0.3, math.pi]))
    same(aten.complex.default, torch.randn(2, 3), torch.randn(3))
    same(aten.view_as_complex.default, torch.randn(2, 2))
    same(aten.view_as_real.default, numbers(2, 3))


def test_reductions_of_extremes() -> None:
    big = torch.full((3,), 1e4, dtype=torch.complex64)
    same(aten.logsumexp.default, big, [0])
    same(aten.logcumsumexp.default, big, 0)
