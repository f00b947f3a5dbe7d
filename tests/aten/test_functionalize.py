"""Functionalization of writes to buffers and inputs and in regions, and the programs that it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export.graph_signature import OutputKind

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.functionalize import functionalize
from fx_onnx.messages.errors import MutationError
from tests.aten.functional_check import check, user_inputs
from tests.modules import FunctionModule
from tests.torch_versions import needs

aten = torch.ops.aten


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.total.add_(x.sum(0))
        return self.total * self.count


class Cache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 8, 4))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        self.keys.index_copy_(1, position, x)
        return self.keys.sum(1)


class SlicedCache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 8, 4))

    def forward(self, x: Tensor) -> Tensor:
        self.keys[:, 2:5] = x
        return self.keys * 1


class Assigned(nn.Module):
    """A buffer that the forward replaces by a new tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        self.state = self.state * 2
        return x + self.state


class Normalized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x) * 2


def _spec(program: AtenProgram) -> list[tuple[OutputKind, str | None]]:
    return [(spec.kind, spec.target) for spec in program.mutations]


def test_a_counter_buffer() -> None:
    program = check(Counter(), torch.randn(3, 4))
    assert _spec(program) == [(OutputKind.BUFFER_MUTATION, "count"), (OutputKind.BUFFER_MUTATION, "total")]


def test_a_cache_buffer() -> None:
    program = check(Cache(), torch.randn(2, 3, 4), torch.tensor([1, 2, 3]))
    assert _spec(program) == [(OutputKind.BUFFER_MUTATION, "keys")]


def test_a_slice_of_a_buffer() -> None:
    program = check(SlicedCache(), torch.randn(2, 3, 4))
    assert _spec(program) == [(OutputKind.BUFFER_MUTATION, "keys")]


def test_an_assigned_buffer() -> None:
    program = check(Assigned(), torch.randn(3, 4))
    assert _spec(program) == [(OutputKind.BUFFER_MUTATION, "state")]


def test_batch_norm_in_training() -> None:
    program = check(Normalized().train(), torch.randn(5, 4))
    assert sorted(spec.target or "" for spec in program.mutations) == [
        "norm.num_batches_tracked", "norm.running_mean", "norm.running_var",
    ]  # fmt: skip


def test_batch_norm_in_evaluation_writes_nothing() -> None:
    assert check(Normalized().eval(), torch.randn(5, 4)).mutations == ()


def write_input(x: Tensor) -> Tensor:
    x.add_(1)
    return x * 2


def write_view_of_input(x: Tensor) -> Tensor:
    x[:, 1].zero_()
    x.view(-1)[0] = 5
    return x.sum()


def return_written_input(x: Tensor) -> Tensor:
    return x.mul_(2)


def return_view_of_written_input(x: Tensor) -> Tensor:
    v = x[1:]
    x.mul_(2)
    return v


def write_second_input(x: Tensor, y: Tensor) -> Tensor:
    y.copy_(x)
    return x + y


@pytest.mark.parametrize(
    "function", [write_input, write_view_of_input, return_written_input, return_view_of_written_input]
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_inputs(function: Callable[..., Any], dynamic: bool) -> None:
    program = check(FunctionModule(function), torch.randn(4, 4), dynamic=dynamic)
    assert _spec(program) == [(OutputKind.USER_INPUT_MUTATION, user_inputs(program)[0])]


def test_the_second_of_two_inputs() -> None:
    program = check(FunctionModule(write_second_input), torch.randn(3, 4), torch.randn(3, 4))
    assert _spec(program) == [(OutputKind.USER_INPUT_MUTATION, user_inputs(program)[1])]


def test_a_graph_without_writes_is_copied() -> None:
    exported = torch.export.export(FunctionModule(lambda x: torch.relu(x[1:]).view(-1)), (torch.randn(4, 4),))
    program = functionalize(AtenProgram.captured(exported))
    assert [node.target for node in program.graph.nodes] == [node.target for node in exported.graph.nodes]
    assert [node.name for node in program.graph.nodes] == [node.name for node in exported.graph.nodes]


def test_regions_are_inlined() -> None:
    class Regions(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                y = x * 2
                y.add_(1)
            with torch.autocast("cpu", enabled=False):
                z = y + 1
            return z * y

    program = check(Regions(), torch.randn(3, 4))
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert all(isinstance(target, torch._ops.OpOverload) for target in targets)


def test_writes_in_regions() -> None:
    """Operands and results of a region are the same tensors inside and outside."""

    class Regions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))
            self.register_buffer("count", torch.ones(4))
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x: Tensor) -> Any:
            x = x * 1
            with torch.no_grad():
                self.mean.add_(x.mean(0))
                self.count[1:].mul_(2)
                row, flat = x[1], x.view(-1)
            self.count.add_(1)
            x.add_(1)
            with torch.no_grad():
                doubled = self.mean * 2
                self.mean[0] = 5
                row.mul_(2)
            with torch.autocast("cpu", enabled=False):
                self.count.mul_(3)
                normal = self.norm(x)
            return x * self.mean + self.count + doubled, row, flat, normal

    program = check(Regions(), torch.randn(3, 4))
    assert {spec.target for spec in program.mutations} == {
        "mean", "count", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked",
    }  # fmt: skip


@needs("nested_compile_region")
def test_a_region_that_runs_twice() -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor) -> Any:
            step = torch.compiler.nested_compile_region(lambda x, y: (x * y, y + 1))
            y, z = step(x, x)
            z.add_(y)
            v, w = step(y, z)
            w.mul_(v)
            return y, z, v, w

    assert check(Twice(), torch.randn(3, 4)).mutations == ()


@needs("writes in branches")
def test_a_write_in_a_branch_is_refused() -> None:
    class InABranch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.sum() > 0, lambda x: x + self.mean.add_(1), lambda x: x - 1, (x,))

    with torch.no_grad():  # torch refuses to capture it with gradients
        exported = torch.export.export(InABranch(), (torch.randn(3, 4),))
    with pytest.raises(MutationError, match="writes in place to a tensor from outside the body; return the new value"):
        functionalize(AtenProgram.captured(exported))


def test_a_write_through_a_view_without_an_inverse_is_refused() -> None:
    def function(x: Tensor) -> Tensor:
        y = x.clone()
        y.unfold(1, 2, 2).zero_()
        return y

    exported = torch.export.export(FunctionModule(function), (torch.randn(4, 4),))
    with pytest.raises(MutationError, match=r"aten\.unfold\.default, a view that fx_onnx cannot write through"):
        functionalize(AtenProgram.captured(exported))


def test_a_node_without_a_fake_value_gets_one() -> None:
    """A user may add nodes to the captured graph without fake values in their metadata."""

    class Doubled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu() + 1

    program = torch.export.export(Doubled(), (torch.randn(3, 4),), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    (relu,) = program.graph.find_nodes(op="call_function", target=aten.relu.default)
    with program.graph.inserting_after(relu):
        twice = program.graph.call_function(aten.mul.Tensor, (relu, 2))
    relu.replace_all_uses_with(twice, delete_user_cb=lambda user: user is not twice)
    result = functionalize(AtenProgram.captured(program))
    (mul,) = result.graph.find_nodes(op="call_function", target=aten.mul.Tensor)
    assert mul.meta["val"].shape == relu.meta["val"].shape
