"""Functions of torch that check values or select by a mask export, and compute what torch computes; no patch stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import fx_onnx
from tests.compare import assert_close

X = torch.randn(3, 7, generator=torch.Generator().manual_seed(0))
COUNTS, WEIGHTS = torch.tensor([1, 2, 1, 1, 3, 0, 2]), torch.linspace(0.5, 2.0, 7)


class Call(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


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
