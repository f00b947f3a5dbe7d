"""Grouped matrix products: groups of any size, empty groups, and rows without a group; matrices that are weights."""

import pytest
import torch
from torch import Tensor, nn

import fx_onnx
from tests.compare import assert_close

pytest.importorskip("transformers.integrations.moe")  # defines the operator


class Experts(nn.Module):
    def forward(self, rows: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
        return torch.ops.transformers.grouped_mm_fallback(rows, matrices, ends)


@pytest.mark.parametrize("ends", [[2, 5, 6], [0, 3, 3], [6, 6, 6], [1, 2, 4]])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_groups(ends: list[int], dtype: torch.dtype) -> None:
    matrices = torch.randn(3, 4, 5)
    module = Experts().eval()
    example = (torch.randn(4, 4), matrices, torch.tensor([1, 2, 4], dtype=dtype))
    program = fx_onnx.export(module, example, dynamic_shapes=({0: "rows"}, None, None))
    rows, offsets = torch.randn(6, 4), torch.tensor(ends, dtype=dtype)
    assert_close(program(rows, matrices, offsets), module(rows, matrices, offsets))


class Weights(nn.Module):
    def __init__(self, is_transposed: bool) -> None:
        super().__init__()
        self.is_transposed = is_transposed
        self.matrices = nn.Parameter(torch.randn((3, 5, 4) if is_transposed else (3, 4, 5)))

    def forward(self, rows: Tensor, ends: Tensor) -> Tensor:
        matrices = self.matrices.transpose(1, 2) if self.is_transposed else self.matrices
        return torch.ops.transformers.grouped_mm_fallback(rows, matrices, ends)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("opset", [10, 20])
def test_weights(is_transposed: bool, opset: int) -> None:
    """Each group is a product with a slice of the weight, which the model stores as the module does."""
    module = Weights(is_transposed).eval()
    example = (torch.randn(4, 4), torch.tensor([1, 2, 4]))
    program = fx_onnx.export(module, example, dynamic_shapes=({0: "rows"}, None), opset_version=opset)
    assert "Loop" not in program.summary().operators
    slices = {name: value.shape for name, value in program.model.graph.initializers.items() if "matrices" in name}
    assert slices == {f"matrices.{group}": module.matrices.shape[1:] for group in range(3)}
    rows = torch.randn(6, 4)
    for ends in ([2, 5, 6], [0, 3, 3], [6, 6, 6], [0, 0, 0]):
        assert_close(program(rows, torch.tensor(ends)), module(rows, torch.tensor(ends)))


def test_weights_in_training() -> None:
    """A weight that is trained is selected at run time."""
    module, ends = Weights(is_transposed=True), torch.tensor([1, 2, 4])
    rows = torch.randn(4, 4)
    program = fx_onnx.export(module, (rows, ends), training=torch.onnx.TrainingMode.TRAINING)
    assert program.summary().operators["Gather"] == 3
    assert_close(program(rows, ends), module(rows, ends))
