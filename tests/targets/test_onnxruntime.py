"""The target onnxruntime."""

import torch

from tests.targets.exporting import exported, operators


def test_it_is_the_default() -> None:
    """bfloat16 is computed in float32, because the CPU provider has no other kernel."""
    x = torch.ones(2, 3, dtype=torch.bfloat16)
    default, program = (exported(lambda x: x.neg(), x, target=target) for target in (None, "onnxruntime"))
    assert operators(default) == operators(program) == ["Cast", "Neg", "Cast"]
    assert program.supports("onnxruntime").share == 1
