"""Modules whose forward branches on data, and how their programs are compared with them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

import fx_onnx
from tests.compare import assert_close

POSITIVE, MIXED = torch.ones(3, 4), torch.tensor([[1.0, -2, 3, 4], [0, 0, -9, 1], [5, -6, -1, 2]])
OUTCOMES = (POSITIVE, -POSITIVE, 0 * POSITIVE, MIXED, -MIXED, 40 * POSITIVE)
"""Data with which each condition of the tests is true, and false."""


class Branching(nn.Module):
    """Computes a function of itself and the inputs.

    Attributes:
        a: a layer.
        b: another one.
        count: a buffer for writes.
        flag: a buffer that is True.
        number: a Python number.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("flag", torch.tensor(True))
        self.number, self.items = 0, list[int]()

    def forward(self, *args: Tensor) -> Any:
        """Takes the inputs of the function."""
        return self.function(self, *args)


def export(function: Callable[..., Any], *, dynamic: bool = False, example: Tensor = POSITIVE, **arguments: Any) -> Any:
    """Exports the module of a function; the rows of the input are dynamic if requested."""
    shapes = ({0: "n"},) if dynamic else None
    return fx_onnx.export(Branching(function).eval(), (example.clone(),), dynamic_shapes=shapes, **arguments)


def check(program: Any, function: Callable[..., Any], data: Iterable[Tensor] = OUTCOMES) -> None:
    """Compares a program with the module of a function: its results, its buffer and its input after the call."""
    names = [str(each.name) for each in program.model.graph.outputs]
    for x in data:
        module, given = Branching(function).eval(), copy.deepcopy(x)
        with torch.no_grad():
            want = module(given)
        after = {"count_out": module.count, "args_0_out": given}
        want = [
            *(want if isinstance(want, (tuple, list)) else [want]),
            *(after[name] for name in names if name in after),
        ]
        assert_close(program(x.clone()), [torch.as_tensor(each) for each in want])


def operators(graph: Any) -> list[str]:
    """Returns the operators of a graph, without those in the branches."""
    return [node.op_type for node in graph]
