"""Tensor.data in the forward: reading is detach(); assigning replaces the data; nothing of it becomes a constant."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.export import Dim

import fx_onnx
from fx_onnx import CaptureError


class Reads(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3))
        self.register_buffer("count", torch.zeros(3))
        self.plain = torch.randn(3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.count.data.add_(1)
        return x.data + 1, (x * 2).data * self.weight.data, self.plain.data * self.count


class Assigns(torch.nn.Module):
    def __init__(self, step: Callable[[Assigns, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
        self.register_buffer("count", torch.zeros(2))
        self.plain, self.step = torch.ones(2), step

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(self, x)


def to_a_buffer(model: Assigns, x: torch.Tensor) -> torch.Tensor:
    model.count.data = model.count + x
    return x + model.count


def to_a_buffer_of_sums(model: Assigns, x: torch.Tensor) -> torch.Tensor:
    model.count.data = model.count + x.sum(0)
    return x + model.count


def to_a_weight(model: Assigns, x: torch.Tensor) -> torch.Tensor:
    model.weight.data = model.weight / model.weight.norm() * 3
    return x * model.weight


def and_back(model: Assigns, x: torch.Tensor) -> torch.Tensor:
    weight = model.weight.data
    model.weight.data = weight / weight.norm()
    result = x * model.weight
    model.weight.data = weight
    return result


def in_place(model: Assigns, x: torch.Tensor) -> torch.Tensor:
    model.weight.data.mul_(0.5)
    model.weight.data.copy_(model.weight + 1)
    return x * model.weight


def after_a_view(_: Assigns, x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    view = y.view(-1)
    y.data = y * 2
    return y + view


def of_an_argument(_: Assigns, x: torch.Tensor) -> torch.Tensor:
    view = x.view(1, 2)
    x.data = x * 2
    return view + x


def shared_with_the_value(_: Assigns, x: torch.Tensor) -> torch.Tensor:
    y, z = x + 1, x * 3
    y.data = z
    z.add_(1)
    y.mul_(2)
    return y + z


def to_both(model: Assigns, x: torch.Tensor) -> torch.Tensor:
    model.weight.data = model.weight.data.clamp(-1, 1.5)
    model.count.data = model.weight * 2
    return x * model.count


def before_a_branch(model: Assigns, x: torch.Tensor) -> torch.Tensor:
    model.weight.data = model.weight / 2
    return x[1:] * model.weight if x.shape[0] > 1 else x


def in_place_before_a_branch(model: Assigns, x: torch.Tensor) -> torch.Tensor:
    model.weight.data.mul_(0.5)
    return x[1:] * model.weight if x.shape[0] > 1 else x


def of_another_shape(_: Assigns, x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    y.data = torch.cat([y, y])
    return y * 2


def to_a_larger_buffer(model: Assigns, x: torch.Tensor) -> torch.Tensor:
    model.count.data = torch.cat([model.count, x])
    return x


def to_an_attribute(model: Assigns, x: torch.Tensor) -> torch.Tensor:
    model.plain.data = model.plain + x
    return x


STEPS = [
    to_a_buffer,
    to_a_weight,
    and_back,
    in_place,
    after_a_view,
    of_an_argument,
    shared_with_the_value,
    of_another_shape,
]


class Branches(torch.nn.Module):
    """Only strict mode traces the bytecode of this forward, and it loses ``x.data``."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.compiler.is_dynamo_compiling():
            return x.data + 1
        raise ValueError("the forward runs in strict mode only")


def test_reading_is_detaching() -> None:
    model, x = Reads().eval(), torch.randn(2, 3)
    program = fx_onnx.export(model, (x,), dynamic_shapes=({0: Dim.AUTO},))
    x = torch.randn(4, 3)
    results = program(x)
    for got, expected in zip(results, model(x), strict=False):
        torch.testing.assert_close(got, expected)
    assert results[-1].tolist() == [1, 1, 1]  # the new value of the buffer
    assert "data" not in vars(torch.Tensor)


@pytest.mark.parametrize("step", STEPS)
def test_assigning_replaces_the_data(step: Callable[[Assigns, torch.Tensor], torch.Tensor]) -> None:
    module = torch.nn.Sequential(Assigns(step)).eval()
    program = fx_onnx.export(module, (torch.tensor([1.0, 2.0]),))
    program.state = {}
    for call in range(3):
        x = torch.tensor([3.0 + call, 1.0])
        torch.testing.assert_close(program(x)[0], module(x.clone()))


ROWS = [to_a_buffer_of_sums, to_a_weight, and_back, in_place, shared_with_the_value, to_both]


@pytest.mark.parametrize("step", [*ROWS, before_a_branch, in_place_before_a_branch])
def test_assigning_with_a_dynamic_dim(step: Callable[[Assigns, torch.Tensor], torch.Tensor]) -> None:
    """The runs that find out for which sizes the program is right change no weight."""
    module, x = Assigns(step).eval(), torch.randn(3, 2)
    program = fx_onnx.export(module, (x,), dynamic_shapes=({0: "n"},))
    program.state = {}
    assert (module.weight.tolist(), module.count.tolist()) == ([1, 2], [0, 0])
    assert bool(program.findings) == (step not in ROWS)
    for rows in (3, 5, 2, *([1] if step in ROWS else [])):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(program(x)[0], module(x.clone()))


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (to_a_larger_buffer, r"data of another shape or dtype .*model\.count\.data = .*\[4\] for torch.float32 \[2\]"),
        (to_an_attribute, r"neither a weight nor a buffer .*model\.plain\.data = .*; register it as a buffer"),
    ],
)
def test_data_that_a_program_cannot_keep(step: Callable[[Assigns, torch.Tensor], torch.Tensor], message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        fx_onnx.export(Assigns(step).eval(), (torch.ones(2),))


def test_a_constant_without_values_is_refused() -> None:
    with pytest.raises(CaptureError, match=r"a tensor that has no values .*return x.data \+ 1.*use detach\(\)"):
        fx_onnx.export(Branches().eval(), (torch.randn(3),))
