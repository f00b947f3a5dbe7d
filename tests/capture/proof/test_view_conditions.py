"""The conditions under which a call returns a view, or a copy, are those of torch's strides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor
from torch.export import Dim

from fx_onnx.aten.shared_storages import share_storages, written_copies
from fx_onnx.capture.proof.view_conditions import view_conditions
from fx_onnx.sizes.size_text import expression_text
from fx_onnx.torch_internals.torch_private import size_oblivious
from tests.capture.sample_modules import Function, t


def conditions(function: Callable[[Tensor], object], *example: int) -> set[str]:
    """Returns the conditions of a function of (n, m), or (n, k, m), whose result it writes into."""

    def forward(x: Tensor) -> Any:
        y = x.clone()
        function(y).add_(1)
        return y

    dims = dict.fromkeys(range(len(example)), Dim.DYNAMIC)
    with size_oblivious():
        program = torch.export.export(Function(forward), (t(*example),), dynamic_shapes={"x": dims}, strict=False)
    share_storages(program.graph)
    (x,) = (node for node in program.graph.nodes if node.name == "x")
    names = ["n", "m"] if len(example) == 2 else ["n", "k", "m"]
    labels = {str(size): name for size, name in zip(x.meta["val"].shape, names, strict=True)}
    found = [condition.expression for condition in view_conditions(written_copies(program.graph_module))]
    assert all(isinstance(condition, sympy.logic.boolalg.Boolean) for condition in found)
    return {expression_text(condition, labels) for condition in found}


LAST = torch.channels_last
TWO_OF_THREE = {"(k != 1) or (m != 1)", "(k != 1) or (n != 1)", "(m != 1) or (n != 1)"}


@pytest.mark.parametrize(
    ("function", "example", "expected"),
    [
        (lambda y: y.t().reshape(-1), (5, 4), {"n != 1", "m != 1"}),
        (lambda y: y.t().contiguous(), (5, 4), {"n != 1", "m != 1"}),
        (lambda y: y.t().reshape(y.shape), (5, 4), {"n != 1", "m != 1", "n != m"}),
        (lambda y: y.t().reshape(y.shape), (4, 4), {"(m == 1) or (n == 1) or (n == m)"}),
        (lambda y: y[:, 1:].ravel(), (5, 4), {"n != 1", "m - 1 != 1"}),
        (lambda y: y[:, ::2].flatten(), (5, 4), {"((m + 1) // 2 == 1) or (m == 2*((m + 1) // 2)) or (n == 1)"}),
        (lambda y: y[:1].expand_as(y).reshape(-1), (5, 4), {"n != 1", "m != 1"}),
        (lambda y: y.transpose(0, 2).reshape(-1, 1), (5, 4, 3), TWO_OF_THREE),
        (lambda y: y.transpose(0, 1).reshape(-1, y.shape[2]), (5, 4, 3), {"n != 1", "k != 1"}),
        (lambda y: y[None].contiguous(memory_format=LAST), (5, 4, 3), {"n != 1", "(k != 1) or (m != 1)"}),
        (lambda y: y.reshape(-1), (5, 4), set()),
        (lambda y: y.t().reshape(y.shape[1], 1, -1), (5, 4), set()),
        (lambda y: y.t().clone(), (5, 4), set()),
    ],
)
def test_conditions(function: Any, example: tuple[int, ...], expected: set[str]) -> None:
    assert conditions(function, *example) == expected
