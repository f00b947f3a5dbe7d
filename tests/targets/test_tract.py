"""The target tract, of whose kernels there is no table."""

import torch

from tests.targets.exporting import exported, operators, padded_maximum


def test_nothing_is_claimed_about_its_kernels() -> None:
    program = exported(padded_maximum, torch.ones(2, 3), target="tract")
    assert program.model.graph.opset_imports[""] == 18
    assert (program.supports("tract").share, bool(program.supports("tract"))) == (None, False)


def test_positions_are_cumulative_sums() -> None:
    """tract gives a Range over a dynamic size an unknown length."""
    shapes = ({1: torch.export.Dim.DYNAMIC},)
    program = exported(lambda x: x + torch.arange(x.shape[1]), torch.ones(2, 3), target="tract", dynamic_shapes=shapes)
    assert "CumSum" in operators(program) and "Range" not in operators(program)
    torch.testing.assert_close(program(torch.ones(2, 5))[0], torch.ones(2, 5) + torch.arange(5))
