"""Decompositions of Hermitian eigenvalues, singular values and functions of them against LAPACK."""

import math
from typing import Any

import pytest
import torch

from fx_onnx.decompositions import DECOMPOSITIONS
from fx_onnx.decompositions.spectral import jacobi_eigh, svd
from tests.compare import assert_close
from tests.decompositions.harness import assert_matches_torch, randn

aten = torch.ops.aten
SHAPES = [(1, 1), (2, 2), (3, 3), (2, 5, 5), (4, 3), (3, 6), (8, 8), (20, 12), (2, 3, 0)]


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 8, 13, 33])
@pytest.mark.parametrize("triangle", ["L", "U"])
def test_eigenvalues(n: int, triangle: str) -> None:
    A = randn(2, n, n, dtype=torch.float64)
    values, vectors = torch.ops.aten._linalg_eigh.default(A, triangle)
    got, axes = DECOMPOSITIONS[aten._linalg_eigh.default](A, triangle)
    assert_close(got, values, 1e-10)
    assert_close(axes.abs(), vectors.abs(), 1e-8)


@pytest.mark.parametrize("A", [torch.zeros(3, 3), torch.ones(4, 4), torch.eye(5) * 2, torch.tensor([[0.0, 1], [1, 0]])])
def test_equal_eigenvalues(A: torch.Tensor) -> None:
    values, vectors = jacobi_eigh(A.double())
    assert_close(vectors @ torch.diag(values) @ vectors.mT, A.double(), 1e-12)
    assert_close(vectors @ vectors.mT, torch.eye(len(A)).double(), 1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("full", [False, True])
def test_singular_values(shape: tuple[int, ...], full: bool) -> None:
    A = randn(*shape)
    U, S, Vh = svd(A, full)
    assert_close(S.float(), torch.linalg.svdvals(A))
    k = min(shape[-2:])
    assert_close((U[..., :k] * S.unsqueeze(-2)) @ Vh[..., :k, :], A.double(), 1e-10)
    want = torch.linalg.svd(A, full_matrices=full)
    assert (U.shape, Vh.shape) == (want.U.shape, want.Vh.shape)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex(dtype: torch.dtype) -> None:
    A = torch.complex(randn(2, 5, 5), randn(2, 5, 5, seed=1)).to(dtype)
    values, vectors = DECOMPOSITIONS[aten._linalg_eigh.default](A)
    assert_close(values, torch.linalg.eigvalsh(A))
    hermitian = A.tril(-1) + A.tril(-1).mH + torch.diag_embed(A.diagonal(dim1=-2, dim2=-1).real)
    assert_close((vectors * values.unsqueeze(-2)) @ vectors.mH, hermitian)
    U, S, Vh = DECOMPOSITIONS[aten._linalg_svd.default](A)
    assert_close(S, torch.linalg.svdvals(A))
    assert_close((U * S.unsqueeze(-2)) @ Vh, A)


@pytest.mark.parametrize("options", [{}, {"rtol": 0.3}, {"atol": 0.5}, {"atol": 0.5, "rtol": 0.3}, {"hermitian": True}])
@pytest.mark.parametrize("shape", [(4, 4), (2, 3, 3), (3, 3, 0)])
def test_ranks(options: dict[str, Any], shape: tuple[int, ...]) -> None:
    A = randn(*shape)
    A = A @ A.mT if "hermitian" in options else A
    assert_matches_torch(aten.linalg_matrix_rank.atol_rtol_float, A, **options)
    limits = {name: torch.tensor(value) if name != "hermitian" else value for name, value in options.items()}
    assert_matches_torch(aten.linalg_matrix_rank.atol_rtol_tensor, A, **limits)


def test_small_singular_values() -> None:
    A = torch.diag(torch.tensor([1.0, 1e-9, 1e-18, 0.0], dtype=torch.float64)) @ randn(4, 4, dtype=torch.float64)
    U, S, Vh = svd(A, True)
    assert_close(S, torch.linalg.svdvals(A), 1e-15)
    for factor in (U, Vh):
        assert_close(factor @ factor.mT, torch.eye(4, dtype=torch.float64), 1e-14)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_loop_ends_for_nan_and_infinity(value: float) -> None:
    A = torch.full((3, 3), value)
    assert DECOMPOSITIONS[aten._linalg_eigh.default](A)[0].isnan().all()
    assert DECOMPOSITIONS[aten._linalg_svd.default](A)[1].isnan().all()


@pytest.mark.parametrize("shape", SHAPES)
def test_pseudo_inverse(shape: tuple[int, ...]) -> None:
    assert_matches_torch(aten.linalg_pinv.atol_rtol_tensor, randn(*shape))
    assert_matches_torch(aten.linalg_pinv.atol_rtol_tensor, randn(*shape), atol=torch.tensor(0.5))
    assert_matches_torch(aten.linalg_pinv.atol_rtol_tensor, randn(*shape), rtol=torch.tensor(0.3))


def test_pseudo_inverse_of_a_singular_matrix() -> None:
    assert_matches_torch(aten.linalg_pinv.atol_rtol_tensor, randn(5, 2) @ randn(2, 4, seed=1))


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 4, 4)])
@pytest.mark.parametrize("driver", ["gelsd", "gelsy", "gels", None])
def test_least_squares(shape: tuple[int, ...], driver: str) -> None:
    assert_matches_torch(aten.linalg_lstsq.default, randn(*shape), randn(*shape[:-1], 2, seed=1), driver=driver)


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_matrix_exponential(scale: float, dtype: torch.dtype) -> None:
    assert_matches_torch(aten.linalg_matrix_exp.default, randn(2, 4, 4, dtype=dtype) * scale, tolerance=2e-4)
    assert_matches_torch(aten.linalg_matrix_exp.default, randn(2, 0, 0, dtype=dtype))


@pytest.mark.skipif(not hasattr(aten, "linalg_polar"), reason="this torch has no linalg.polar")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_functions_of_torch_2_14(dtype: torch.dtype) -> None:
    A = randn(2, 5, 3, dtype=dtype)
    for got, want in zip(DECOMPOSITIONS[aten.linalg_polar.default](A), torch.linalg.polar(A), strict=True):
        assert_close(got, want, 1e-4)
    square = A.mH @ A
    assert_close(DECOMPOSITIONS[aten.linalg_matrix_sqrth.default](square), torch.linalg.matrix_sqrth(square), 1e-3)
    below = -torch.eye(3, dtype=dtype)
    assert_close(DECOMPOSITIONS[aten.linalg_matrix_sqrth.default](below), torch.linalg.matrix_sqrth(below))
