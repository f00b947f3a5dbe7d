"""The random state, which other threads share, is touched only where a program may draw random numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from fx_onnx.torch_internals.random_state import random_numbers_of


class Net(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def _program(function: Callable[[Tensor], Tensor]) -> ExportedProgram:
    return torch.export.export(Net(function), (torch.ones(3),))


_ATTENTION = nn.functional.scaled_dot_product_attention
_FIXED: list[Callable[[Tensor], Tensor]] = [
    torch.sin, lambda x: nn.functional.dropout(x, training=False), lambda x: x[1:] + 1,
    lambda x: _ATTENTION(x[None], x[None], x[None]),
    lambda x: torch.cond(x[0] > 0, lambda y: y.sin(), lambda y: y.cos(), (x,)),
]  # fmt: skip


@pytest.mark.parametrize("function", _FIXED)
def test_a_program_without_random_numbers_leaves_the_state(function: Callable[[Tensor], Tensor]) -> None:
    program = _program(function)
    before = torch.get_rng_state()
    with random_numbers_of(program, seed=0):
        assert torch.equal(torch.get_rng_state(), before)
        torch.rand(2)  # of another thread
        drawn = torch.get_rng_state()
    assert torch.equal(torch.get_rng_state(), drawn)


_BRANCHES = (lambda x: torch.bernoulli(x), lambda x: x.sin())
_RANDOM: list[Callable[[Tensor], Tensor]] = [
    lambda x: x + torch.rand(3), lambda x: nn.functional.dropout(x), lambda x: torch.cond(x[0] > 0, *_BRANCHES, (x,)),
    lambda x: _ATTENTION(x[None], x[None], x[None], dropout_p=0.5),
]  # fmt: skip


@pytest.mark.parametrize("function", [*_RANDOM, None])
def test_a_program_that_may_draw_restores_the_state(function: Callable[[Tensor], Tensor] | None) -> None:
    program = None if function is None else _program(function)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    with random_numbers_of(program, seed=0):
        first = torch.rand(2)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(0)
    assert torch.equal(torch.rand(2), first)
