"""The target coreml, of whose kernels there is no table."""

import torch

from tests.targets.exporting import exported, padded_maximum


def test_nothing_is_claimed_about_its_kernels() -> None:
    program = exported(padded_maximum, torch.ones(2, 3), target="coreml")
    assert program.model.graph.opset_imports[""] == 18
    assert (program.supports("coreml").share, bool(program.supports("coreml"))) == (None, False)
