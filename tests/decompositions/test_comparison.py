"""Kinds of numbers and extremes, against torch."""

import pytest
import torch

from tests.decompositions.against import against, special

aten = torch.ops.aten


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_floats(dtype: torch.dtype) -> None:
    x = special(dtype)
    against(aten.isfinite.default, x)
    against(aten.isreal.default, x)
    for equal_nan in (False, True):
        against(aten.isclose.default, x, x.unsqueeze(1), equal_nan=equal_nan)
        against(aten.isclose.default, x, x.unsqueeze(1), 0.0, 0.0, equal_nan)
    against(aten.isclose.default, x, x.unsqueeze(1), 0.5, 0.2)
    against(aten.fmax.default, x, x.unsqueeze(1))
    against(aten.fmin.default, x, x.unsqueeze(1))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_integers(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 1], dtype=dtype)
    for target in (aten.isnan, aten.isinf, aten.isposinf, aten.isneginf, aten.isfinite, aten.isreal):
        against(target.default, x)
    against(aten.isclose.default, x, x.flip(0), 1e-3)
    against(aten.fmax.default, x, torch.tensor([0.5, torch.nan, 2.0]))
