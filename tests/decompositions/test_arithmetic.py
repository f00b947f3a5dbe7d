"""Quotients, remainders and means of two numbers, against torch."""

import pytest
import torch

from fx_onnx.decompositions import DECOMPOSITIONS as DECOMPOSED
from tests.decompositions.against import against, special, spread

aten = torch.ops.aten
FLOATS = [torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", FLOATS)
def test_division(dtype: torch.dtype) -> None:
    x, y = spread(-7, 7, dtype), spread(-0.9, 1.1, dtype, 50).unsqueeze(1)
    zero_and_more = torch.tensor([0.0, 0.1, -0.3, torch.inf], dtype=dtype).unsqueeze(1)
    for divisor in (y, zero_and_more):
        against(aten.floor_divide.default, x, divisor)
        against(aten.remainder.Tensor, x, divisor)
    for mode in ("floor", "trunc", None):
        against(aten.div.Tensor_mode, x, y, rounding_mode=mode)
        against(aten.div.Scalar_mode, x, 0.3, rounding_mode=mode)
    against(aten.floor_divide.Scalar, x, -0.1)
    against(aten.floor_divide.Scalar, x, 0.0)
    against(aten.remainder.Scalar, x, -0.1)
    against(aten.remainder.Scalar_Tensor, 2.5, x)


def test_the_quotient_is_that_of_the_exact_division() -> None:
    x, y = torch.tensor([1.0]), torch.tensor([0.1])
    assert float(torch.floor(x / y)) == 10.0  # what a naive translation gives
    against(aten.floor_divide.default, x, y)


@pytest.mark.parametrize("dtype", FLOATS)
def test_between(dtype: torch.dtype) -> None:
    x, y = spread(-3, 3, dtype), spread(-2, 5, dtype)
    against(aten.lerp.Scalar, x, y, 0.2)
    against(aten.lerp.Scalar, x, y, 1)
    against(aten.lerp.Tensor, x, y, spread(-1, 2, dtype))
    assert float(DECOMPOSED[aten.lerp.Scalar](torch.tensor(1e8), torch.tensor(1.0), 1.0)) == 1.0


@pytest.mark.parametrize("dtype", FLOATS)
def test_signs(dtype: torch.dtype) -> None:
    x = special(dtype)
    against(aten.signbit.default, x)
    against(aten.signbit.default, torch.arange(-2, 3))
    against(aten.copysign.Tensor, x, x[:9].unsqueeze(1))
    against(aten.copysign.Tensor, torch.arange(-2, 3), torch.tensor([1, -1, 0, 1, -1]))
    against(aten.copysign.Scalar, x, -0.0)
    against(aten.copysign.Scalar, torch.arange(3), -1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_directions(dtype: torch.dtype) -> None:
    x = special(dtype)
    against(aten.atan2.default, x, x.unsqueeze(1))
    against(aten.hypot.default, x[:9], x[:9].unsqueeze(1))
    against(aten.hypot.default, torch.tensor([3e30, torch.inf], dtype=dtype), torch.tensor([4e30, 1.0], dtype=dtype))
    against(aten.nextafter.default, x, x.unsqueeze(1), tolerance=0.0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_neighbour_is_exact(dtype: torch.dtype) -> None:
    x = torch.cat([spread(-9, 9, dtype), torch.tensor([1e-30, 2.0, 0.5, torch.finfo(dtype).max], dtype=dtype)])
    for towards in (torch.inf, -torch.inf, 0.0):
        other = torch.full_like(x, towards)
        got, want = DECOMPOSED[aten.nextafter.default](x, other), torch.nextafter(x, other)
        assert torch.equal(got, want)


def test_lcm() -> None:
    x = torch.arange(-12, 13)
    against(aten.lcm.default, x, x.unsqueeze(1))
