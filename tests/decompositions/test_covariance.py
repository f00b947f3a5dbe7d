"""Covariances without a read of values are those of torch."""

import warnings

import pytest
import torch
from torch import Tensor

from fx_onnx.decompositions.covariance import WITHOUT_VALUES, corrcoef, cov
from tests.compare import assert_close

X = torch.randn(3, 7, generator=torch.Generator().manual_seed(0))
COUNTS, WEIGHTS = torch.tensor([1, 2, 1, 1, 3, 0, 2]), torch.linspace(0.5, 2.0, 7)


@pytest.mark.parametrize("x", [X, X[0], X[:1], X[0, 0], X.long(), torch.complex(X, X.flip(0)), X[:, :1], X[:, :0]])
def test_covariances_are_those_of_torch(x: Tensor) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch warns of one observation
        assert_close(cov(x), torch.cov(x))
        assert_close(corrcoef(x), torch.corrcoef(x))


@pytest.mark.parametrize("correction", [0, 1, 3, 12])
@pytest.mark.parametrize(
    "weights", [{"fweights": COUNTS}, {"aweights": WEIGHTS}, {"fweights": COUNTS, "aweights": WEIGHTS}]
)
@pytest.mark.parametrize("x", [X, X[0], X.long()])
@pytest.mark.filterwarnings("ignore:cov")
def test_weighted_covariances_are_those_of_torch(x: Tensor, weights: dict[str, Tensor], correction: int) -> None:
    assert_close(cov(x, correction=correction, **weights), torch.cov(x, correction=correction, **weights))


@pytest.mark.parametrize(("count", "with_replacement"), [(2, False), (3, True), (9, False), (0, False)])
def test_combinations_are_those_of_torch(count: int, with_replacement: bool) -> None:
    found = WITHOUT_VALUES[torch.combinations](X[0], count, with_replacement)
    assert torch.equal(found, torch.combinations(X[0], count, with_replacement))
