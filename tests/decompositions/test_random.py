"""Decompositions of random operators: tests check ranges and permutations, because the values are random."""

from collections.abc import Callable

import pytest
import torch

import fx_onnx
from fx_onnx.decompositions import DECOMPOSITIONS

aten = torch.ops.aten
x = torch.zeros(1000)


@pytest.mark.parametrize(
    ("target", "arguments", "low", "high"),
    [
        (aten.randint.default, (5, [1000]), 0, 4),
        (aten.randint.low, (-3, 5, [1000]), -3, 4),
        (aten.randint_like.default, (x, 5), 0, 4),
        (aten.uniform.default, (x, -1.0, 3.0), -1, 3),
        (aten.bernoulli.p, (x, 0.5), 0, 1),
        (aten.geometric.default, (x, 0.5), 1, 40),
        (aten.exponential.default, (x,), 0, 40),
        (aten.random.to, (x, 5), 0, 4),
        (aten.random.default, (x.to(torch.int8),), 0, 127),
        (aten.random.default, (x > 0,), 0, 1),
        (aten.random.default, (x.half(),), 0, 2048),
        (aten.multinomial.default, (torch.tensor([0.0, 1.0, 1.0]), 2), 1, 2),
    ],
)
def test_limits(target: torch._ops.OpOverload, arguments: tuple[object, ...], low: float, high: float) -> None:
    got, want = DECOMPOSITIONS[target](*arguments), target(*arguments)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    assert low <= float(got.min()) <= float(got.max()) <= high


def test_randperm_is_a_permutation() -> None:
    assert DECOMPOSITIONS[aten.randperm.default](100).sort().values.tolist() == list(range(100))


class Draws(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


@pytest.mark.parametrize(
    ("function", "given", "mean", "variance"),
    [
        (torch.poisson, 4.5, 4.5, 4.5),
        (torch.poisson, 0.0, 0.0, 0.0),
        (torch._standard_gamma, 2.5, 2.5, 2.5),
        (torch._standard_gamma, 0.3, 0.3, 0.3),
        (lambda x: torch.distributions.Gamma(x, 2 * x).sample(), 1.5, 0.5, 1 / 6),
        (lambda x: torch.empty_like(x).random_(), 0.0, 2**23, 2**48 / 12),
        (lambda x: torch.empty_like(x).random_(3, 10), 0.0, 6.0, 4.0),
        (lambda x: torch.empty_like(x).random_(3, None), 0.0, 2**23, 2**48 / 12),
    ],
)
def test_moments(function: Callable[[torch.Tensor], torch.Tensor], given: float, mean: float, variance: float) -> None:
    """Tests samples of the exported model within six standard errors of the mean, and a fifth of the variance."""
    program = fx_onnx.export(Draws(function), (torch.full((3,), given),), dynamic_shapes=({0: "n"},))
    found = program(torch.full((9000,), given))[0].double()
    assert abs(found.mean() - mean) <= 6 * (variance / 9000) ** 0.5
    assert abs(found.var() - variance) <= 0.2 * variance
