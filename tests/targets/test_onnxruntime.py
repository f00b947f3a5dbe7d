"""The target onnxruntime."""

import torch

import fx_onnx
from tests.targets.exporting import exported, operators


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
    assert found == [["DequantizeLinear", "MatMul"], ["MatMulNBits"]]
