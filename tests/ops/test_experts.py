"""Grouped matrix products: groups of any size, empty groups, and rows without a group."""

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
