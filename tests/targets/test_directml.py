"""The target directml, of whose kernels there is no table."""

import torch

from tests.targets.exporting import exported, padded_maximum


def test_nothing_is_claimed_about_its_kernels() -> None:
    program = exported(padded_maximum, torch.ones(2, 3), target="directml")
    assert program.model.graph.opset_imports[""] == 18
    assert (program.supports("directml").share, bool(program.supports("directml"))) == (None, False)
