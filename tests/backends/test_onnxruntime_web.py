"""The target onnxruntime-web."""

import torch

from tests.exporting import exported, operators


def test_it_has_the_kernels_of_the_cpu_provider() -> None:
    program = exported(lambda x: x.neg(), torch.ones(2, 3, dtype=torch.bfloat16), target="onnxruntime-web")
    assert operators(program) == ["Cast", "Neg", "Cast"]
