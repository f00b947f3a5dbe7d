"""Functions of torch that check values or select by a mask export, and compute what torch computes; no patch stays."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import fx_onnx
from fx_onnx.capture.patches.composite_functions import _corrcoef, _cov
from tests.compare import assert_close

X = torch.randn(3, 7, generator=torch.Generator().manual_seed(0))
COUNTS, WEIGHTS = torch.tensor([1, 2, 1, 1, 3, 0, 2]), torch.linspace(0.5, 2.0, 7)


class Call(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


@pytest.mark.parametrize("x", [X, X[0], X[:1], X[0, 0], X.long(), torch.complex(X, X.flip(0)), X[:, :1], X[:, :0]])
def test_covariances_are_those_of_torch(x: Tensor) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch warns of one observation
        assert_close(_cov(x), torch.cov(x))
        assert_close(_corrcoef(x), torch.corrcoef(x))


@pytest.mark.parametrize("correction", [0, 1, 3, 12])
@pytest.mark.parametrize(
    "weights", [{"fweights": COUNTS}, {"aweights": WEIGHTS}, {"fweights": COUNTS, "aweights": WEIGHTS}]
)
@pytest.mark.parametrize("x", [X, X[0], X.long()])
@pytest.mark.filterwarnings("ignore:cov")
def test_weighted_covariances_are_those_of_torch(x: Tensor, weights: dict[str, Tensor], correction: int) -> None:
    assert_close(_cov(x, correction=correction, **weights), torch.cov(x, correction=correction, **weights))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.cov(x),
        lambda x: torch.corrcoef(x),
        lambda x: x.cov(),
        lambda x: torch.cov(x, fweights=COUNTS, aweights=WEIGHTS, correction=0),
    ],
    ids=["cov", "corrcoef", "method", "weights"],
)
def test_a_dynamic_number_of_variables(function: Callable[[Tensor], Tensor]) -> None:
    model, original = Call(function).eval(), torch.cov
    with pytest.warns(fx_onnx.OnnxExporterWarning, match="wrong where n == 1, because the code removes the axis"):
        program = fx_onnx.export(model, (X,), dynamic_shapes=(({0: "n"},),))
    for x in (X, torch.randn(5, 7)):
        assert_close(program(x)[0], function(x))
    assert torch.cov is original


@pytest.mark.parametrize(("count", "with_replacement"), [(2, False), (3, True), (9, False)])
def test_combinations_of_a_static_vector(count: int, with_replacement: bool) -> None:
    model = Call(lambda x: torch.combinations(x, count, with_replacement)).eval()
    x = torch.randn(5)
    assert_close(fx_onnx.export(model, (x,))(x)[0], model(x))
