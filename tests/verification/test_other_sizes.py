"""Arguments of other sizes keep the ranges, the guards and the values of the given arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import fx_onnx
from fx_onnx.verification.other_sizes import Resizer


class Model(nn.Module):
    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        return x[:, : ids.shape[0]].sum(1) + ids.float().mean()


def resizer(dynamic_shapes: Any, *args: Tensor, module: nn.Module | None = None) -> Resizer:
    program = torch.export.export(module or Model(), args, dynamic_shapes=dynamic_shapes)
    return Resizer(program, args, {})


def sizes(found: Resizer) -> list[list[list[int]]]:
    return [[list(each.values()) for each in candidates] for candidates in found.rounds()]


class Add(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y.sum()


X, Y = torch.arange(10.0).reshape(5, 2), torch.arange(7)


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ((Dim.DYNAMIC, Dim.DYNAMIC), [[[6, 9], [10, 14]], [[4, 5], [2, 3]]]),
        ((Dim("a", min=4, max=6), None), [[[6]], [[4]]]),
        ((Dim("a", min=5), None), [[[6], [10]], [[9], [20]]]),  # two larger sizes, because none is smaller
        ((None, None), []),
    ],
)
def test_sizes_lie_in_the_range(dims: tuple[Any, Any], expected: Any) -> None:
    assert sizes(resizer(tuple({0: dim} for dim in dims), X, Y, module=Add())) == expected


def test_guards_hold() -> None:
    class Halves(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.reshape(2, -1)

    x = torch.arange(6.0)
    assert sizes(resizer(({0: Dim.AUTO},), x, module=Halves())) == [[[8], [12]], [[4], [24]]]


def test_arguments_repeat_or_cut_the_given_values() -> None:
    found = resizer(({0: Dim.DYNAMIC}, None), X, Y, module=Add())
    (symbol,) = found.sizes
    (larger, same), kwargs = found.arguments({symbol: 7})
    assert torch.equal(larger, torch.cat([X, X[:2]])) and torch.equal(same, Y) and kwargs == {}
    assert torch.equal(found.arguments({symbol: 3})[0][0], X[:3])
    assert found.label({symbol: 3}) == "x.shape[0]=3"


def test_a_relation_of_dims_and_their_names() -> None:
    """The second input is one longer than the first, and its dim is an expression over the first's."""

    class Longer(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x + y[1:]  # torch learns that y is one longer

    x, y = torch.ones(4), torch.ones(5)
    program = fx_onnx.export(Longer().eval(), (x, y), dynamic_shapes=({0: Dim.AUTO}, {0: Dim.AUTO}))
    assert program.exported_program is not None
    found = Resizer(program.exported_program, (x, y), {}, program.model.graph.inputs)
    labels = [[found.label(each) for each in candidates] for candidates in found.rounds()]
    assert labels == [["x.shape[0]=5", "x.shape[0]=8"], ["x.shape[0]=3", "x.shape[0]=2"]]
    for candidates in found.rounds():
        (first, second), _ = found.arguments(candidates[0])
        assert len(second) == len(first) + 1


def test_one_dim_alone() -> None:
    found = resizer(({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC}), X, Y, module=Add())
    joint = next(found.rounds())[0]
    assert [list(each.values()) for each in found.single(joint)] == [[6, 7], [5, 9]]


def test_a_named_dim_that_follows_from_another_one() -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return torch.cat([y, y]) + x

    with pytest.warns(fx_onnx.OnnxExporterWarning, match="'n' equal to 2"):
        program = fx_onnx.export(Twice(), (torch.ones(6), torch.ones(3)), dynamic_shapes=({0: "n"}, {0: "m"}))
    assert program.verify().ok
