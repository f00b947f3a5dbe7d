"""The target mnn, of whose kernels there is no table."""

import torch

from tests.targets.exporting import exported, operators, padded_maximum


def test_nothing_is_claimed_about_its_kernels() -> None:
    program = exported(padded_maximum, torch.ones(2, 3), target="mnn")
    assert program.model.graph.opset_imports[""] == 18
    assert (program.supports("mnn").share, bool(program.supports("mnn"))) == (None, False)


def test_less_becomes_greater() -> None:
    """MNN's Less of two negative numbers is wrong."""
    program = exported(lambda x: x < -1.0, torch.ones(2, 3), target="mnn")
    assert operators(program) == ["Greater"]
