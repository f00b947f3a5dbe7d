"""The target webgpu, which is compared with its published table only."""

import torch

from tests.exporting import exported


def test_a_node_without_a_kernel_is_noted_but_not_refused() -> None:
    program = exported(lambda x: (x > 0).nonzero(), torch.ones(2, 3), target="webgpu")
    assert [each.operator for each in program.supports("webgpu").missing] == ["NonZero"]
    assert exported(lambda x: x.relu() + 1, torch.ones(2, 3), target="webgpu").supports("webgpu").share == 1
