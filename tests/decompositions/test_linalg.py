"""Matrix products, against torch."""

import math

import pytest
import torch

from tests.decompositions.harness import check, random

aten = torch.ops.aten


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (2, 3), (0, 1), (1, 0)])
def test_added_products(dtype: torch.dtype, beta: int, alpha: int) -> None:
    def tensor(*shape: int) -> torch.Tensor:
        return (random(*shape) * 3).to(dtype)

    options = {"beta": beta, "alpha": alpha}
    check(aten.addmm.default, tensor(4), tensor(2, 3), tensor(3, 4), **options)
    check(aten.addmv.default, tensor(2), tensor(2, 3), tensor(3), **options)
    check(aten.addr.default, tensor(2, 3), tensor(2), tensor(3), **options)
    check(aten.baddbmm.default, tensor(5, 2, 4), tensor(5, 2, 3), tensor(5, 3, 4), **options)
    check(aten.addbmm.default, tensor(2, 4), tensor(5, 2, 3), tensor(5, 3, 4), **options)


def test_what_counts_for_nothing_is_not_looked_at() -> None:
    check(aten.addmm.default, torch.full((2, 4), math.nan), random(2, 3), random(3, 4), beta=0)


def test_others() -> None:
    check(aten.vdot.default, random(3), random(3, seed=1))
    check(aten.bilinear.default, random(2, 3), random(2, 4), random(5, 3, 4), random(5))
    check(aten.bilinear.default, random(7, 2, 3), random(7, 2, 4), random(5, 3, 4))


def test_factors_of_integers_are_integers() -> None:
    a, b = torch.arange(6).reshape(1, 2, 3), torch.arange(6).reshape(1, 3, 2)
    check(aten.baddbmm.default, torch.ones(1, 2, 2, dtype=torch.int64), a, b, beta=2.7, alpha=1.6)
    check(
        aten.addr.default, torch.tensor([[True, False]]), torch.tensor([True]), torch.tensor([False, True]), beta=False
    )
