"""Decompositions of LU, Cholesky and QR factorizations against LAPACK."""

import pytest
import torch

from fx_onnx.decompositions import DECOMPOSITIONS
from fx_onnx.decompositions._loops import MAX_UNROLLED_STEPS, for_loop
from tests.compare import assert_close
from tests.decompositions.harness import assert_matches_torch, randn

aten = torch.ops.aten
SHAPES = [(1, 1), (4, 4), (2, 3, 5, 3), (3, 5), (2, 7, 7), (11, 9), (10, 10), (0, 3, 3), (0, 0), (2, 3, 0)]
SQUARE = [shape for shape in SHAPES if shape[-1] == shape[-2]]


def positive_definite(*shape: int) -> torch.Tensor:
    A = randn(*shape)
    return A @ A.mT + torch.eye(shape[-1])


@pytest.mark.parametrize("shape", SHAPES)
def test_lu(shape: tuple[int, ...]) -> None:
    assert_matches_torch(aten.linalg_lu_factor_ex.default, randn(*shape))
    assert_matches_torch(aten.linalg_lu.default, randn(*shape))
    LU, pivots = torch.linalg.lu_factor(randn(*shape))
    assert_matches_torch(aten.lu_unpack.default, LU, pivots)


def test_singular_matrices_are_reported() -> None:
    A = torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.0, 0.0, 1.0]])
    assert_matches_torch(aten.linalg_lu_factor_ex.default, A)
    assert_matches_torch(aten.linalg_det.default, A)
    assert_matches_torch(aten.linalg_cholesky_ex.default, torch.eye(3))


@pytest.mark.parametrize("n", [4, 10])
def test_a_matrix_that_is_not_positive_definite(n: int) -> None:
    A = positive_definite(2, n, n)
    A[1, 2, 2] = -1.0
    assert_matches_torch(aten.linalg_cholesky_ex.default, A)
    factor = DECOMPOSITIONS[aten.linalg_cholesky.default](A)
    assert factor[0].isfinite().all() and factor[1].isnan().all()


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("shape", [(3, 3), (2, 10, 4)])
def test_complex(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    A = torch.complex(randn(*shape), randn(*shape, seed=1)).to(dtype)
    assert_matches_torch(aten.linalg_lu.default, A)
    assert_matches_torch(aten.linalg_qr.default, A)
    assert_matches_torch(aten.geqrf.default, A)
    assert_matches_torch(aten.linalg_cholesky_ex.default, A @ A.mH + torch.eye(shape[-2]))


def test_for_loop_unrolled_and_rolled() -> None:
    def step(k: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
        return (x + k * y,)

    for count in (0, 1, MAX_UNROLLED_STEPS, MAX_UNROLLED_STEPS + 1, 20):
        (found,) = for_loop(count, step, (torch.zeros(2),), (torch.tensor([1.0, 2.0]),))
        assert_close(found, torch.tensor([1.0, 2.0]) * sum(range(count)))


@pytest.mark.parametrize("shape", SQUARE)
def test_determinants(shape: tuple[int, ...]) -> None:
    assert_matches_torch(aten.linalg_det.default, randn(*shape))
    found = DECOMPOSITIONS[aten._linalg_slogdet.default](randn(*shape))
    assert_close(found[:2], tuple(torch.linalg.slogdet(randn(*shape))))


@pytest.mark.parametrize("shape", SQUARE)
@pytest.mark.parametrize("upper", [False, True])
def test_cholesky(shape: tuple[int, ...], upper: bool) -> None:
    assert_matches_torch(aten.linalg_cholesky_ex.default, positive_definite(*shape), upper=upper)
    if hasattr(aten, "cholesky"):  # torch 2.14 does not have it
        assert_matches_torch(aten.cholesky.default, positive_definite(*shape), upper)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
def test_qr(shape: tuple[int, ...], mode: str) -> None:
    assert_matches_torch(aten.linalg_qr.default, randn(*shape), mode)


@pytest.mark.parametrize("shape", [(4, 4), (2, 5, 3), (3, 5)])
def test_packed_reflections(shape: tuple[int, ...]) -> None:
    A = randn(*shape)
    assert_matches_torch(aten.geqrf.default, A)
    packed, tau = torch.geqrf(A)
    assert_matches_torch(aten.linalg_householder_product.default, packed[..., : tau.size(-1)], tau)
    for transpose in (False, True):
        other = randn(*shape[:-2], shape[-2], shape[-2], seed=1)
        assert_matches_torch(aten.ormqr.default, packed, tau, other, True, transpose)
        assert_matches_torch(aten.ormqr.default, packed, tau, other, False, transpose)
