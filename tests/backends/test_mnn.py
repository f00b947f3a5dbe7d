"""The target mnn, of whose kernels there is no table."""

from typing import Any

import pytest
import torch

from fx_onnx.messages.errors import UnsupportedOperatorError
from tests.exporting import exported, operators, padded_maximum


def test_nothing_is_claimed_about_its_kernels() -> None:
    program = exported(padded_maximum, torch.ones(2, 3), target="mnn")
    assert program.model.graph.opset_imports[""] == 18
    assert (program.supports("mnn").share, bool(program.supports("mnn"))) == (None, False)


def test_less_becomes_greater() -> None:
    """MNN's Less of two negative numbers is wrong."""
    program = exported(lambda x: x < -1.0, torch.ones(2, 3), target="mnn")
    assert operators(program) == ["Greater"]


def test_a_norm_along_an_axis() -> None:
    """MNN does not read the axes of ReduceL2."""
    x = torch.tensor([[3.0, 4.0], [1.0, 2.0]])
    program = exported(lambda x: x.norm(dim=-1), x, target="mnn")
    assert "ReduceSum" in operators(program) and "ReduceL2" not in operators(program)
    torch.testing.assert_close(program(x)[0], x.norm(dim=-1))


def test_sums_of_rows() -> None:
    """MNN keeps the last of several updates of a row."""
    places = torch.tensor([1, 0, 1])
    program = exported(lambda x: torch.zeros(2, 2).index_add(0, places, x), torch.ones(3, 2), target="mnn")
    assert "ScatterND" not in operators(program)
    torch.testing.assert_close(program(torch.ones(3, 2))[0], torch.tensor([[1.0, 1.0], [2.0, 2.0]]))


def test_sums_at_computed_places() -> None:
    x = torch.tensor([[1.0, 0.0], [1.0, 2.0], [0.0, 4.0]])
    program = exported(lambda x: torch.zeros(2, 2).index_add(0, x[:, 0].long(), x), x, target="mnn")
    assert "ScatterND" not in operators(program)
    torch.testing.assert_close(program(x)[0], torch.tensor([[0.0, 4.0], [2.0, 2.0]]))


def test_sums_of_elements_in_two_axes_are_refused() -> None:
    places = torch.tensor([[1, 0], [1, 1]])
    with pytest.raises(UnsupportedOperatorError, match="MNN ignores the reduction"):
        exported(lambda x: torch.zeros(2, 2).scatter_add(0, places, x), torch.ones(2, 2), target="mnn")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: torch.fmod(x, -2.0), "Mod .*sign of the divisor"),
        (lambda x: x @ x, "MatMul .*product of two vectors"),
        (lambda x: x.long()[:, None] @ x.long()[None], "MatMul .*floats only"),
        (lambda x: x.to(torch.uint8) + x.to(torch.uint8), "Add .*8-bit integers"),
        (lambda x: x.long() & 3, "BitwiseAnd"),
        (lambda x: torch.nn.functional.one_hot(x.long(), 5), "OneHot"),
        (lambda x: torch.nn.functional.max_pool1d(x[None], 2, return_indices=True), "MaxPool .*second result"),
        (lambda x: x.half().round(), "Round .*halves"),
        (lambda x: torch.nn.functional.nll_loss(x[None], x[:1].long()), "NegativeLogLikelihoodLoss .*ignored"),
        (lambda x: torch.unique(x[None], dim=1), "Unique .*axis"),
    ],
)
def test_what_is_wrong_is_refused(function: Any, reason: str) -> None:
    with pytest.raises(UnsupportedOperatorError, match=reason):
        exported(function, torch.tensor([1.0, 2.0, 3.0]), target="mnn")


@pytest.mark.parametrize("mode", ["nearest", "bicubic"])
def test_other_samples_of_a_grid_are_refused(mode: str) -> None:
    grid = torch.rand(1, 3, 3, 2)
    with pytest.raises(UnsupportedOperatorError, match="interpolates linearly only"):
        exported(
            lambda x: torch.nn.functional.grid_sample(x, grid, mode=mode, align_corners=False),
            torch.ones(1, 2, 4, 4),
            target="mnn",
        )


def test_equal_parts_of_a_dynamic_axis_are_refused() -> None:
    options = {"target": "mnn", "dynamic_shapes": ({0: torch.export.Dim.DYNAMIC},)}
    with pytest.raises(UnsupportedOperatorError, match=r"Split .*the last part is smaller"):
        exported(lambda x: x.chunk(2)[1] + 1, torch.ones(5, 2), **options)
    exported(lambda x: x.chunk(2, dim=1)[1] + 1, torch.ones(5, 2), **options)
