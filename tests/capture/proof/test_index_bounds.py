"""Indices that are computed from sizes bound the sizes by the rows of their table."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import fx_onnx

IDS = torch.randint(3, 9, (2, 8))


class Table(nn.Module):
    """Reads a table of 64 rows, as an embedding or by an index."""

    def __init__(self, index: Callable[[Tensor], Tensor], read: str) -> None:
        super().__init__()
        self.table, self.index, self.read = nn.Embedding(64, 4), index, read

    def forward(self, ids: Tensor) -> Tensor:
        index = self.index(ids)
        if self.read == "embedding":
            return self.table(index)
        return self.table.weight[index] if self.read == "index" else self.table.weight.index_select(0, index)


def masked(ids: Tensor) -> Tensor:
    """The positions of RoBERTa, in which padding does not count."""
    mask = ids.ne(1).int()
    return ((torch.cumsum(mask, 1).type_as(mask) + 0) * mask).long() + 1


def counted(ids: Tensor) -> Tensor:
    """The positions of OPT, whose mask is of ones and of float."""
    mask = torch.ones(ids.shape[0], ids.shape[1])
    return (mask.cumsum(1) * mask - 1).long() + 2


INDICES: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "positions": (lambda ids: torch.arange(ids.shape[1]), "n <= 64"),
    "positions of a row": (lambda ids: torch.arange(0, ids.shape[1])[None].expand(ids.shape[0], -1), "n <= 64"),
    "an offset": (lambda ids: torch.arange(ids.shape[1]) + 2, "n <= 62"),
    "a start": (lambda ids: torch.arange(3, ids.shape[1] + 3), "n <= 61"),
    "both sizes": (lambda ids: torch.arange(ids.shape[1] + ids.shape[0]), "b + n <= 64"),
    "backwards": (lambda ids: ids.shape[1] - 1 - torch.arange(ids.shape[1]), "n <= 64"),
    "a step back": (lambda ids: torch.arange(ids.shape[1] - 1, -1, -1), "n <= 64"),
    "flipped": (lambda ids: torch.arange(ids.shape[1]).flip(0).roll(1) + 1, "n <= 63"),
    "distances": (lambda ids: (torch.arange(ids.shape[1])[:, None] - torch.arange(ids.shape[1])).abs(), "n <= 64"),
    "the first ones twice": (lambda ids: torch.arange(ids.shape[1]).clamp(min=2), "n <= 64"),
    "masked": (masked, "n <= 62"),
    "counted": (counted, "n <= 62"),
}


@pytest.mark.parametrize("name", INDICES)
def test_a_table_bounds_the_sizes(name: str) -> None:
    index, condition = INDICES[name]
    model = Table(index, "embedding").eval()
    program = fx_onnx.export(model, (IDS,), dynamic_shapes=({0: "b", 1: "n"},))
    assert [(str(each), each.kind) for each in program.dims.conditions] == [(condition, "bound")]
    assert program.dims.conditions[0].place.endswith(": return self.table(index))")
    assert program.findings == []
    size = 62 if name == "both sizes" else int(condition.removeprefix("n <= "))
    ids = torch.full((2, size), 5)
    torch.testing.assert_close(program(ids)[0], model(ids))
    with pytest.raises(IndexError):
        model(torch.full((2, size + 1), 5))


@pytest.mark.parametrize(
    "function",
    [
        lambda table, index: table.gather(0, index),
        lambda table, index: table.index_copy(0, index[:, 0], index + 0.0),
        lambda table, index: table.index_add(0, index[:, 0], index + 0.0),
        lambda table, index: table.index_fill(0, index[:, 0], 1.0),
        lambda table, index: table.scatter(0, index, 1.0),
        lambda table, index: table.scatter_add(0, index, index + 0.0),
    ],
)
def test_operators_with_an_index(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            index = torch.arange(x.shape[0])[:, None].expand(x.shape)
            return function(torch.ones(9, 4), index)

    dims = fx_onnx.export(Model(), (torch.rand(5, 4),), dynamic_shapes=({0: "n"},)).dims
    assert [(str(each), each.kind) for each in dims.conditions] == [("n <= 9", "bound")]
    with pytest.raises((IndexError, RuntimeError)):
        Model()(torch.rand(10, 4))


@pytest.mark.parametrize(("read", "first"), [("embedding", ["n >= 4"]), ("index_select", ["n >= 4"]), ("index", [])])
def test_a_negative_index(read: str, first: list[str]) -> None:
    """Indexing takes -64 to 63, and the other operators take 0 to 63."""
    model = Table(lambda ids: torch.arange(ids.shape[1] - 4, ids.shape[1]), read).eval()
    conditions = fx_onnx.export(model, (IDS,), dynamic_shapes=({1: "n"},)).dims.conditions
    assert sorted(map(str, conditions)) == ["n <= 64", *first]
    assert {each.kind for each in conditions} == {"bound"}


@pytest.mark.parametrize("read", ["index", "index_select"])
def test_every_read_of_a_table_counts(read: str) -> None:
    program = fx_onnx.export(Table(INDICES["positions"][0], read).eval(), (IDS,), dynamic_shapes=({0: "b", 1: "n"},))
    assert [str(each) for each in program.dims.conditions] == ["n <= 64"]


OTHERS: list[Callable[[Tensor], Tensor]] = [
    lambda ids: ids,
    lambda ids: ids.cumsum(1) % 64,
    lambda ids: torch.arange(5),
    lambda ids: (torch.ones(ids.shape[1]).cumsum(0) * 0.5).long(),  # half of the positions, rounded down
]


@pytest.mark.parametrize("index", OTHERS)
def test_other_indices_bound_nothing(index: Callable[[Tensor], Tensor]) -> None:
    program = fx_onnx.export(Table(index, "embedding").eval(), (IDS,), dynamic_shapes=({0: "b", 1: "n"},))
    assert list(program.dims.conditions) == []
