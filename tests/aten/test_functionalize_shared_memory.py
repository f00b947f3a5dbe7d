"""Tests of arguments and weights that share memory, of which the forward writes one in place."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.messages.errors import MutationError
from tests.modules import FunctionModule

MEMORY = torch.zeros(6)


class WriteFirst(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return x + y


class Buffers(nn.Module):
    """Writes one of two buffers and reads both."""

    def __init__(self, first: Tensor, second: Tensor) -> None:
        super().__init__()
        self.register_buffer("first", first)
        self.child = nn.Module()
        self.child.register_buffer("second", second)

    def forward(self, x: Tensor) -> Tensor:
        self.first.add_(1)
        self.child.second.mul_(2)
        return x + self.first * 10 + self.child.second[:2]


@pytest.mark.parametrize("y", [MEMORY[:3], MEMORY[2:5], MEMORY.view(torch.int32)[:3]])
def test_arguments_of_which_one_is_written(y: Tensor) -> None:
    with pytest.raises(MutationError, match=r"^The argument 'x' and the argument 'y' share memory, .*x.add_\(1\)"):
        fx_onnx.export(WriteFirst(), (MEMORY[:3], y))


def test_arguments_without_a_common_element() -> None:
    """Two halves of one tensor, and alternating columns of a matrix."""
    matrix = torch.zeros(4, 2)
    for x, y in ((MEMORY[:3], MEMORY[3:]), (matrix[:, 0], matrix[:, 1])):
        program = fx_onnx.export(WriteFirst(), (x, y))
        assert program(x, y)[0].tolist() == (x + 1 + y).tolist()


def test_arguments_that_are_only_read() -> None:
    program = fx_onnx.export(FunctionModule(lambda x, y: x - y), (MEMORY, MEMORY), verify=True)
    assert program(torch.ones(6), torch.zeros(6))[0].tolist() == [1] * 6


def test_an_argument_that_is_a_weight_of_the_model() -> None:
    """torch.export takes the argument for the weight; the program must read the argument."""
    linear = nn.Linear(2, 2)
    for weight in (linear.weight, linear.bias):
        program = fx_onnx.export(linear, (weight,))
        x = torch.rand(weight.shape)
        torch.testing.assert_close(program(x)[0], linear(x))
    buffers = Buffers(torch.zeros(2), torch.ones(2))
    with pytest.raises(MutationError, match=r"The buffer 'child.second' and the argument 'x' share memory"):
        fx_onnx.export(buffers, (buffers.child.second,))


def test_a_buffer_with_two_names() -> None:
    """The two names are one value, also from call to call."""
    shared = torch.ones(2)
    module = Buffers(shared, shared).eval()
    x = torch.rand(2)
    program = fx_onnx.export(module, (x,), verify=True)
    assert fx_onnx.verify(program, (x,), module=module).ok
    assert [output.name for output in program.model.graph.outputs][1:] == ["first_out"]
    program.state = {}
    for _ in range(3):
        torch.testing.assert_close(program(x)[0], module(x))


def test_buffers_that_overlap() -> None:
    with pytest.raises(MutationError, match=r"'first' and the buffer 'child.second' share memory.*register one"):
        fx_onnx.export(Buffers(MEMORY[:2], MEMORY[1:3]), (torch.zeros(2),))
