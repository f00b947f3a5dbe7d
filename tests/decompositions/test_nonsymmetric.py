"""Decompositions of eigenvalues of general matrices against LAPACK."""

import math

import pytest
import torch
from torch import Tensor

from fx_onnx.decompositions import DECOMPOSITIONS
from tests.compare import assert_close
from tests.decompositions.harness import assert_matches_torch, randn

aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
SPECIAL = {
    "zeros": torch.zeros(4, 4),
    "identity": torch.eye(4),
    "diagonal": torch.diag(torch.tensor([3.0, 1.0, 2.0, 2.0])),
    "upper": randn(5, 5).triu(),
    "lower": randn(5, 5).tril(),
    "defective": torch.diag(torch.ones(4), 1) + 2 * torch.eye(5),
    "nilpotent": torch.diag(torch.ones(4), 1),
    "cyclic": torch.roll(torch.eye(5), 1, 0),
    "rotation": torch.tensor([[0.0, -1.0], [1.0, 0.0]]),
    "symmetric": randn(6, 6) + randn(6, 6).mT,
    "skew": randn(5, 5) - randn(5, 5).mT,
    "singular": torch.arange(16.0).reshape(4, 4),
    "unbalanced": randn(4, 4) * torch.tensor([[1.0], [1e6], [1e-6], [1.0]]) * torch.tensor([1.0, 1e-6, 1e6, 1.0]),
    "huge": randn(4, 4) * 1e18,
    "tiny": randn(4, 4) * 1e-20,
}


def matrix(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return (
        torch.complex(randn(*shape), randn(*shape, seed=1)).to(dtype) if dtype.is_complex else randn(*shape).to(dtype)
    )


def assert_eigen(A: Tensor, values: Tensor, vectors: Tensor) -> None:
    """Checks that the eigenvalues are LAPACK's in any order, and that A @ v = value * v for each unit vector v."""
    want = torch.linalg.eigvals(A)
    scale = float(want.abs().max()) or 1.0
    distance = (values.unsqueeze(-1) - want.unsqueeze(-2)).abs() / scale
    allowed = 1e-5 if A.dtype in (torch.float32, torch.complex64) else 1e-12
    assert distance.amin(-1).max() < allowed and distance.amin(-2).max() < allowed
    left, right = A.to(vectors.dtype) @ vectors, vectors * values.unsqueeze(-2)
    assert_close(left / scale, right / scale, allowed)
    assert_close(vectors.abs().square().sum(-2), torch.ones_like(values.real), 1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 3), (2, 5, 5), (20, 20), (0, 0), (0, 3, 3), (2, 0, 0)])
def test_eigenvalues(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    A = matrix(shape, dtype)
    values, vectors = DECOMPOSITIONS[aten.linalg_eig.default](A)
    want = torch.linalg.eig(A)
    assert (values.shape, vectors.shape) == (want[0].shape, want[1].shape)
    assert (values.dtype, vectors.dtype) == (want[0].dtype, want[1].dtype)
    if A.numel():
        assert_eigen(A, values, vectors)
    assert_close(DECOMPOSITIONS[aten.linalg_eigvals.default](A), values)


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_order(n: int) -> None:
    """Tests that the order is LAPACK's where rounding does not decide it."""
    assert_matches_torch(aten.linalg_eigvals.default, randn(3, n, n, dtype=torch.float64), tolerance=1e-10)
    assert_matches_torch(aten.linalg_eigvals.default, matrix((3, n, n), torch.complex128), tolerance=1e-10)


@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_special_matrices(name: str, dtype: torch.dtype) -> None:
    A = SPECIAL[name].to(dtype)
    assert_eigen(A, *DECOMPOSITIONS[aten.linalg_eig.default](A))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_loop_ends_for_nan_and_infinity(value: float) -> None:
    assert DECOMPOSITIONS[aten.linalg_eig.default](torch.full((3, 3), value))[0].real.isnan().all()
