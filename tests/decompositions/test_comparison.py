"""Decompositions of tests such as isfinite and isclose, and of fmax and fmin, against torch."""

import pytest
import torch

from tests.decompositions.harness import assert_matches_torch, special_values
from tests.torch_versions import needs

aten = torch.ops.aten


@needs("isclose broadcasts")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_floats(dtype: torch.dtype) -> None:
    x = special_values(dtype)
    assert_matches_torch(aten.isfinite.default, x)
    assert_matches_torch(aten.isreal.default, x)
    for equal_nan in (False, True):
        assert_matches_torch(aten.isclose.default, x, x.unsqueeze(1), equal_nan=equal_nan)
        assert_matches_torch(aten.isclose.default, x, x.unsqueeze(1), 0.0, 0.0, equal_nan)
    assert_matches_torch(aten.isclose.default, x, x.unsqueeze(1), 0.5, 0.2)
    assert_matches_torch(aten.fmax.default, x, x.unsqueeze(1))
    assert_matches_torch(aten.fmin.default, x, x.unsqueeze(1))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_integers(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 1], dtype=dtype)
    for target in (aten.isnan, aten.isinf, aten.isposinf, aten.isneginf, aten.isfinite, aten.isreal):
        assert_matches_torch(target.default, x)
    assert_matches_torch(aten.isclose.default, x, x.flip(0), 1e-3)
    assert_matches_torch(aten.fmax.default, x, torch.tensor([0.5, torch.nan, 2.0]))


def test_isin() -> None:
    """NaN equals no element, and an empty set has none; a set of 20 elements is one that torch sorts."""
    x, numbers = special_values(torch.float32), torch.tensor([torch.nan, torch.inf, torch.inf, 0.0, -0.0, torch.nan])
    for tests in (numbers, numbers[:0], numbers[3:], numbers.repeat(20), numbers.reshape(2, 3), numbers[3]):
        for invert in (False, True):
            assert_matches_torch(aten.isin.Tensor_Tensor, x, tests, invert=invert)
            assert_matches_torch(aten.isin.Scalar_Tensor, 0.0, tests, invert=invert)
    assert_matches_torch(aten.isin.Tensor_Tensor, x[:3].unique(), numbers[1:4:2], assume_unique=True)
    assert_matches_torch(aten.isin.Tensor_Tensor, torch.tensor([[0, 1], [2, 3]]), torch.tensor([3, 0, 5]))
    assert_matches_torch(aten.isin.Tensor_Scalar, x, torch.nan)
    tenth = torch.tensor([0.1, 0.2], dtype=torch.float64)
    assert_matches_torch(aten.isin.Tensor_Scalar, tenth, 0.1)
    assert_matches_torch(aten.isin.Scalar_Tensor, 0.1, tenth)
