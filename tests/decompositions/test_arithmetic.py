"""Decompositions of quotients, remainders, interpolations and sign functions against torch."""

import pytest
import torch

from fx_onnx.decompositions import DECOMPOSITIONS as DECOMPOSED
from tests.decompositions.harness import assert_matches_torch, evenly_spaced, special_values

aten = torch.ops.aten
FLOATS = [torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", FLOATS)
def test_division(dtype: torch.dtype) -> None:
    x, y = evenly_spaced(-7, 7, dtype), evenly_spaced(-0.9, 1.1, dtype, 50).unsqueeze(1)
    zero_and_more = torch.tensor([0.0, 0.1, -0.3, torch.inf], dtype=dtype).unsqueeze(1)
    for divisor in (y, zero_and_more):
        assert_matches_torch(aten.floor_divide.default, x, divisor)
        assert_matches_torch(aten.remainder.Tensor, x, divisor)
    for mode in ("floor", "trunc", None):
        assert_matches_torch(aten.div.Tensor_mode, x, y, rounding_mode=mode)
        assert_matches_torch(aten.div.Scalar_mode, x, 0.3, rounding_mode=mode)
    assert_matches_torch(aten.floor_divide.Scalar, x, -0.1)
    assert_matches_torch(aten.floor_divide.Scalar, x, 0.0)
    assert_matches_torch(aten.remainder.Scalar, x, -0.1)
    assert_matches_torch(aten.remainder.Scalar_Tensor, 2.5, x)


def test_floor_division_does_not_round_up() -> None:
    x, y = torch.tensor([1.0]), torch.tensor([0.1])
    assert float(torch.floor(x / y)) == 10.0  # the floor of the rounded quotient is wrong
    assert_matches_torch(aten.floor_divide.default, x, y)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_floor_division_keeps_a_number_beside_half_precision(dtype: torch.dtype) -> None:
    x = torch.arange(-40, 40).div(4).to(dtype)
    for number in (0.1, -0.3, 1e-8, 1e5):
        assert_matches_torch(aten.floor_divide.Scalar, x, number)
        assert_matches_torch(aten.floor_divide.default, x, torch.tensor(number))


@pytest.mark.parametrize("dtype", FLOATS)
def test_lerp(dtype: torch.dtype) -> None:
    x, y = evenly_spaced(-3, 3, dtype), evenly_spaced(-2, 5, dtype)
    assert_matches_torch(aten.lerp.Scalar, x, y, 0.2)
    assert_matches_torch(aten.lerp.Scalar, x, y, 1)
    assert_matches_torch(aten.lerp.Tensor, x, y, evenly_spaced(-1, 2, dtype))
    assert float(DECOMPOSED[aten.lerp.Scalar](torch.tensor(1e8), torch.tensor(1.0), 1.0)) == 1.0


@pytest.mark.parametrize("dtype", FLOATS)
def test_signs(dtype: torch.dtype) -> None:
    x = special_values(dtype)
    assert_matches_torch(aten.signbit.default, x)
    assert_matches_torch(aten.signbit.default, torch.arange(-2, 3))
    assert_matches_torch(aten.copysign.Tensor, x, x[:9].unsqueeze(1))
    assert_matches_torch(aten.copysign.Tensor, torch.arange(-2, 3), torch.tensor([1, -1, 0, 1, -1]))
    assert_matches_torch(aten.copysign.Scalar, x, -0.0)
    assert_matches_torch(aten.copysign.Scalar, torch.arange(3), -1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_angles_and_lengths(dtype: torch.dtype) -> None:
    x = special_values(dtype)
    assert_matches_torch(aten.atan2.default, x, x.unsqueeze(1))
    assert_matches_torch(aten.hypot.default, x[:9], x[:9].unsqueeze(1))
    assert_matches_torch(
        aten.hypot.default, torch.tensor([3e30, torch.inf], dtype=dtype), torch.tensor([4e30, 1.0], dtype=dtype)
    )
    assert_matches_torch(aten.nextafter.default, x, x.unsqueeze(1), tolerance=0.0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_nextafter_is_exact(dtype: torch.dtype) -> None:
    x = torch.cat([evenly_spaced(-9, 9, dtype), torch.tensor([1e-30, 2.0, 0.5, torch.finfo(dtype).max], dtype=dtype)])
    for towards in (torch.inf, -torch.inf, 0.0):
        other = torch.full_like(x, towards)
        got, want = DECOMPOSED[aten.nextafter.default](x, other), torch.nextafter(x, other)
        assert torch.equal(got, want)


def test_lcm() -> None:
    x = torch.arange(-12, 13)
    assert_matches_torch(aten.lcm.default, x, x.unsqueeze(1))
