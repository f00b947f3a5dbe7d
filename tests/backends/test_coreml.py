"""The target coreml, which is compared with its published table only."""

import torch

from tests.exporting import exported, padded_maximum


def test_a_node_without_a_kernel_is_noted_but_not_refused() -> None:
    program = exported(lambda x: (x > 0).nonzero(), torch.ones(2, 3), target="coreml")
    assert "NonZero" in [each.operator for each in program.supports("coreml").missing]
    assert exported(lambda x: x.argmax(1), torch.ones(2, 3), target="coreml").supports("coreml").share == 1


def test_the_opset() -> None:
    assert exported(padded_maximum, torch.ones(2, 3), target="coreml").model.graph.opset_imports[""] == 18
