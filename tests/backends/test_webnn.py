"""The target webnn, which is compared with its published table only."""

import torch

from tests.exporting import exported


def test_a_node_without_a_kernel_is_noted_but_not_refused() -> None:
    program = exported(lambda x: (x > 0).nonzero(), torch.ones(2, 3), target="webnn")
    assert [each.operator for each in program.supports("webnn").missing] == ["NonZero"]
    assert exported(lambda x: x.relu() + 1, torch.ones(2, 3), target="webnn").supports("webnn").share == 1
