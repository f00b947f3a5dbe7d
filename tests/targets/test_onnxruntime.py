"""The target onnxruntime."""

import pytest
import torch

import fx_onnx
from tests.exporting import exported, operators


def test_it_is_the_default() -> None:
    """bfloat16 is computed in float32, because the CPU provider has no other kernel."""
    x = torch.ones(2, 3, dtype=torch.bfloat16)
    default, program = (exported(lambda x: x.neg(), x, target=target) for target in (None, "onnxruntime"))
    assert operators(default) == operators(program) == ["Cast", "Neg", "Cast"]
    assert program.supports("onnxruntime").share == 1


class Quantized(torch.nn.Module):
    """A product with a weight of 8 bits."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.ones(16, 4, dtype=torch.int8))
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ (self.weight * self.scale)


def test_operators_of_the_runtime_need_its_name() -> None:
    """Without a target, the model has ONNX's own operators only."""
    found = [
        operators(fx_onnx.export(Quantized(), (torch.ones(2, 16),), target=target, verbose=False))
        for target in (None, "onnxruntime")
    ]
    assert found == [["DequantizeLinear", "MatMul"], ["MatMulNBits", "Split", "Add"]]


@pytest.mark.parametrize(("target", "level"), [("onnxruntime", 1), ("onnxruntime-accuracy-level-4", 4)])
def test_the_accuracy_level_of_a_target(target: str, level: int) -> None:
    """The default computes in float32. The other target rounds the operand of the product to 8 bits."""
    x = torch.tensor([[1000.0, *[0.001] * 15]])  # rounded to 8 bits, the small elements are 0
    program = fx_onnx.export(Quantized().eval(), (x,), target=target, verbose=False)
    node, *_sum_of_halves = program.model.graph
    assert node.attributes["accuracy_level"].as_int() == level
    assert bool((program(x)[0] == 1000).all()) == (level == 4)
