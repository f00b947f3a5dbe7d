"""Decompositions of matrix products against torch."""

import itertools
import math

import pytest
import torch

from tests.decompositions.harness import assert_matches_torch, randn

aten = torch.ops.aten


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (2, 3), (0, 1), (1, 0)])
def test_added_products(dtype: torch.dtype, beta: int, alpha: int) -> None:
    def tensor(*shape: int) -> torch.Tensor:
        return (randn(*shape) * 3).to(dtype)

    options = {"beta": beta, "alpha": alpha}
    assert_matches_torch(aten.addmm.default, tensor(4), tensor(2, 3), tensor(3, 4), **options)
    assert_matches_torch(aten.addmv.default, tensor(2), tensor(2, 3), tensor(3), **options)
    assert_matches_torch(aten.addr.default, tensor(2, 3), tensor(2), tensor(3), **options)
    assert_matches_torch(aten.baddbmm.default, tensor(5, 2, 4), tensor(5, 2, 3), tensor(5, 3, 4), **options)
    assert_matches_torch(aten.addbmm.default, tensor(2, 4), tensor(5, 2, 3), tensor(5, 3, 4), **options)


def test_beta_zero_ignores_nan() -> None:
    assert_matches_torch(aten.addmm.default, torch.full((2, 4), math.nan), randn(2, 3), randn(3, 4), beta=0)


def test_vdot_and_bilinear() -> None:
    assert_matches_torch(aten.vdot.default, randn(3), randn(3, seed=1))
    assert_matches_torch(aten.bilinear.default, randn(2, 3), randn(2, 4), randn(5, 3, 4), randn(5))
    assert_matches_torch(aten.bilinear.default, randn(7, 2, 3), randn(7, 2, 4), randn(5, 3, 4))


def test_factors_are_truncated_for_integers() -> None:
    a, b = torch.arange(6).reshape(1, 2, 3), torch.arange(6).reshape(1, 3, 2)
    assert_matches_torch(aten.baddbmm.default, torch.ones(1, 2, 2, dtype=torch.int64), a, b, beta=2.7, alpha=1.6)
    assert_matches_torch(
        aten.addr.default, torch.tensor([[True, False]]), torch.tensor([True]), torch.tensor([False, True]), beta=False
    )


@pytest.mark.parametrize(
    "shapes", [((2, 3), (4, 5)), ((3,), (2, 2)), ((2, 1, 3), (4,)), ((), (2, 3)), ((0, 3), (2, 2))]
)
def test_kronecker_products(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    assert_matches_torch(aten.kron.default, randn(*shapes[0]), randn(*shapes[1], seed=1))


@pytest.mark.parametrize("sizes", [(2, 3, 4), (9, 1, 8, 2), (1, 7, 2, 9, 3), (0, 3, 2, 4)])
@pytest.mark.parametrize("row", [False, True])
@pytest.mark.parametrize("column", [False, True])
def test_products_of_several_matrices(sizes: tuple[int, ...], row: bool, column: bool) -> None:
    matrices = [randn(*pair) for pair in itertools.pairwise(sizes)]
    matrices[0] = matrices[0].sum(0) if row else matrices[0]
    matrices[-1] = matrices[-1].sum(1) if column else matrices[-1]
    assert_matches_torch(aten.linalg_multi_dot.default, matrices)
    if not (row or column):
        assert_matches_torch(aten.chain_matmul.default, matrices)
