"""Decompositions of random operators: tests check ranges and permutations, because the values are random."""

import pytest
import torch

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
        (aten.multinomial.default, (torch.tensor([0.0, 1.0, 1.0]), 2), 1, 2),
    ],
)
def test_limits(target: torch._ops.OpOverload, arguments: tuple[object, ...], low: float, high: float) -> None:
    got, want = DECOMPOSITIONS[target](*arguments), target(*arguments)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    assert low <= float(got.min()) <= float(got.max()) <= high


def test_randperm_is_a_permutation() -> None:
    assert DECOMPOSITIONS[aten.randperm.default](100).sort().values.tolist() == list(range(100))
