"""Programs from files that write in place: their fake tensors share storages as those of a capture do."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.aten.shared_storages import share_storages, written_copies
from fx_onnx.torch_internals.torch_private import size_oblivious, storage_id


class Module(nn.Module):
    """Calls a function with a module that has a buffer, and the input."""

    def __init__(self, function: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("table", torch.arange(12.0).reshape(3, 4))

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def reloaded(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


def in_no_grad(_: Any, x: Tensor) -> Tensor:
    y = x * 1
    with torch.no_grad():
        y[:, 1:].add_(1)
        columns = y.t()
    columns[0].fill_(4)
    return y


def in_a_branch(_: Any, x: Tensor) -> Tensor:
    def write(t: Tensor) -> Tensor:
        y = t * 1
        y[:, 0].fill_(2)
        return y

    return torch.cond(x.sum() > 1e9, torch.cos, write, (x,))


def written(*writes: Callable[[Tensor], Any]) -> Callable[[Any, Tensor], Tensor]:
    """Returns a function that writes into a copy of its input."""

    def function(_: Any, x: Tensor) -> Tensor:
        y = x * 1
        for write in writes:
            write(y)
        return y

    return function


@pytest.mark.parametrize(
    "function",
    [
        written(lambda y: y[:, 0].fill_(1)),
        written(lambda y: y.split(2, 1)[0].add_(1)),
        written(lambda y: y.unbind(1)[2].zero_()),
        written(lambda y: y.t()[0].fill_(3)),
        written(lambda y: y.t_()[0].add_(5)),
        written(lambda y: y.unsqueeze_(0).add_(5)),
        written(lambda y: y.diagonal().fill_(3)),
        written(lambda y: y.reshape(-1)[:3].fill_(3)),
        written(lambda y: y.t().reshape(-1)[:3].fill_(3)),
        written(lambda y: y.contiguous().add_(5)),
        written(lambda y: y.t().contiguous().add_(5)),
        written(lambda y: y.relu_().clamp_(max=1)[0].neg_()),
        written(lambda y: y.__setitem__(y > 0, 0.0), lambda y: y[1:].mul_(3)),
        written(lambda y: y[:, 1:3].__setitem__((slice(None), torch.tensor([0])), 7.0)),
        written(lambda y: torch.add(y[:, 0], 1, out=y[:, 1])),
        lambda _, x: x[x[:, 0] > -9.0][1:].fill_(1),
        lambda module, x: (module.table.view(-1)[2:5].copy_(x[0, :3]), module.table * 2)[1],
        lambda _, x: (x[:, 0].add_(1), x * 2)[1],
        in_no_grad,
        in_a_branch,
    ],
)
@pytest.mark.parametrize("dims", [None, ({0: torch.export.Dim.DYNAMIC},)])
def test_a_program_from_a_file_writes_in_place(function: Any, dims: Any) -> None:
    x = torch.randn(3, 4)
    program = reloaded(torch.export.export(Module(function), (x.clone(),), dynamic_shapes=dims))
    expected = Module(function)(x.clone())
    torch.testing.assert_close(fx_onnx.export(program)(x.clone())[0], expected)


def test_a_captured_program_stays_as_it_is() -> None:
    program = torch.export.export(Module(written(lambda y: y[:, 0].fill_(1))), (torch.randn(3, 4),))
    before = {node: node.meta.get("val") for node in program.graph.nodes}
    share_storages(program.graph)
    assert all(node.meta.get("val") is value for node, value in before.items())


def test_a_program_without_writes_stays_as_it_is() -> None:
    program = reloaded(torch.export.export(Module(lambda _, x: x.t()), (torch.randn(3, 4),)))
    share_storages(program.graph)
    assert len({storage_id(node.meta["val"]) for node in program.graph.nodes if node.op != "output"}) == 3


def copies(function: Callable[[Tensor], Any], *example: int) -> list[bool]:
    """Returns whether each call that may copy returned a view, in a capture that takes no size of its example."""
    dims = ({0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC},)
    with size_oblivious():
        module = Module(lambda _, x: function(x * 1))
        program = torch.export.export(module, (torch.randn(example),), dynamic_shapes=dims)
    share_storages(program.graph)
    return list(written_copies(program.graph_module).values())


@pytest.mark.parametrize(
    ("function", "example", "expected"),
    [
        (lambda y: (y.t().reshape(-1).add_(1), y)[1], (3, 4), [False]),
        (lambda y: (y.t().reshape(-1), y.add_(1))[0], (3, 4), [False]),
        (lambda y: (y.reshape(-1).add_(1), y)[1], (3, 4), [True]),
        (lambda y: (y[:, ::2].reshape(-1).add_(1), y)[1], (3, 4), [True]),
        (lambda y: (y[:, ::2].reshape(-1).add_(1), y)[1], (3, 5), [False]),
        (lambda y: y.add_(1).t().reshape(-1), (3, 4), []),
        (lambda y: y.t().reshape(-1), (3, 4), []),
    ],
)
def test_calls_that_may_copy_beside_a_write(function: Any, example: tuple[int, ...], expected: list[bool]) -> None:
    assert copies(function, *example) == expected
