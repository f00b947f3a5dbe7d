"""Constant folding: nodes that depend on no input become constants; weights and large results are not folded."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

import fx_onnx
from tests.compare import assert_close


class Net(nn.Module):
    """A module whose forward is a function of the input and the module."""

    def __init__(self, function: Callable[["Net", Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(4))
        self.register_buffer("kept", torch.arange(4.0))
        self.register_buffer("table", torch.arange(4.0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self, x)


def export(function: Callable[[Net, Tensor], Tensor], x: Tensor) -> fx_onnx.ONNXProgram:
    module = Net(function).eval()
    program = fx_onnx.export(module, (x,))
    assert_close(program(x), module(x))
    return program


def operators(program: fx_onnx.ONNXProgram) -> list[str]:
    return [node.op_type for node in program.model.graph]


def test_tensors_made_of_numbers_are_folded() -> None:
    program = export(lambda net, x: x + torch.arange(4).float().cos().unsqueeze(0).triu(1), torch.randn(2, 4))
    assert operators(program) == ["Add"]


def test_equal_results_are_one_constant() -> None:
    """Equal constants are stored once. Outputs that are the same constant still have different names."""
    module = Net(lambda net, x: (x + torch.arange(4).sin()).cos() + torch.arange(4).sin()).eval()
    program = fx_onnx.export(module, (torch.randn(2, 4),))
    assert len(program.model.graph.initializers) == 1
    both = Net(lambda net, x: (x + torch.arange(4), torch.arange(4), torch.arange(4))).eval()  # type: ignore[arg-type,return-value]
    x = torch.randn(2, 4)
    twice = fx_onnx.export(both, (x,))
    assert len({value.name for value in twice.model.graph.outputs}) == 3
    assert_close(twice(x), both(x))


def test_non_persistent_buffers_and_lifted_tensors_are_folded() -> None:
    program = export(lambda net, x: x * (net.table + 1) + torch.tensor([1.0, 2.0, 3.0, 4.0]) * 2, torch.randn(2, 4))
    assert operators(program) == ["Mul", "Add"]


def test_weights_are_not_folded() -> None:
    module, x = Net(lambda net, x: x * net.weight.exp() + net.kept.exp()).eval(), torch.randn(2, 4)
    program = fx_onnx.export(module, (x,), optimize=False)
    assert_close(program(x), module(x))
    assert operators(program).count("Exp") == 2
    assert {"weight", "kept"} <= set(program.model.graph.initializers)


def test_a_written_buffer_is_not_folded() -> None:
    def forward(net: Net, x: Tensor) -> Tensor:
        net.table.add_(1)
        return x + net.table

    module = Net(forward).eval()
    program = fx_onnx.export(module, (torch.zeros(4),))
    assert_close(program(torch.zeros(4))[0], torch.arange(4.0) + 1)


def test_random_results_are_not_folded() -> None:
    module = Net(lambda net, x: x + torch.rand(4))
    program = fx_onnx.export(module.eval(), (torch.zeros(4),))
    assert "RandomUniform" in "".join(operators(program))


def test_large_results_are_not_folded() -> None:
    program = export(lambda net, x: x + torch.arange(100_000).float(), torch.zeros(100_000))
    held = sum(value.const_value.nbytes for value in program.model.graph.initializers.values())
    assert held < 1000
