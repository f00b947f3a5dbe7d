"""The target tract, of whose kernels there is no table."""

import pytest
import torch

from fx_onnx.messages.errors import UnsupportedOperatorError
from tests.exporting import exported, operators, padded_maximum


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


def test_a_split_with_computed_sizes_is_refused() -> None:
    def parts(x: torch.Tensor) -> list[torch.Tensor]:
        count = (x > 0).sum().item()
        torch._check(count >= 0)
        torch._check(count <= x.shape[0])
        return [part.sum() for part in torch.split(x, [count, x.shape[0] - count])]

    with pytest.raises(UnsupportedOperatorError, match="tract needs constants"):
        exported(parts, torch.tensor([1.0, -1.0, 2.0]), target="tract")


def test_a_range_with_a_computed_step_is_refused() -> None:
    """The offsets of an EmbeddingBag of rows are multiples of their length."""
    options = {"target": "tract", "dynamic_shapes": ({1: torch.export.Dim.DYNAMIC},)}
    with pytest.raises(UnsupportedOperatorError, match=r"Range .*: the step is computed, and tract needs constants"):
        exported(lambda x: torch.arange(0, 12, x.shape[1]), torch.ones(2, 3), **options)


def test_a_resize_to_a_computed_size_has_gathers() -> None:
    shapes = ({2: torch.export.Dim.DYNAMIC, 3: torch.export.Dim.DYNAMIC},)
    x = torch.randn(1, 1, 4, 6)

    def halved_and_back(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x[..., ::2, ::2], size=x.shape[2:], mode="bilinear")

    program = exported(halved_and_back, x, target="tract", dynamic_shapes=shapes)
    assert "Resize" not in operators(program)
    torch.testing.assert_close(program(x)[0], halved_and_back(x))


def test_the_bias_of_a_product_in_float16_is_added() -> None:
    layer = torch.nn.Linear(3, 2).half()
    program = exported(layer, torch.ones(2, 3, dtype=torch.float16), target="tract")
    assert operators(program) == ["Gemm", "Add"]
