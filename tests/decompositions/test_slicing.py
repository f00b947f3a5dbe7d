"""Decompositions of writes along diagonals and at strides against torch."""

import pytest
import torch

from fx_onnx.decompositions.slicing import as_strided_scatter, diag_embed, diagonal_scatter


@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 3])
@pytest.mark.parametrize("dims", [(0, 1), (1, 2), (-1, 0)])
def test_diagonals(offset: int, dims: tuple[int, int]) -> None:
    x = torch.randn(4, 5, 6)
    src = torch.randn(x.diagonal(offset, *dims).shape)
    torch.testing.assert_close(diagonal_scatter(x, src, offset, *dims), torch.diagonal_scatter(x, src, offset, *dims))
    torch.testing.assert_close(diag_embed(x, offset, *dims), torch.diag_embed(x, offset, *dims))


@pytest.mark.parametrize("offset", [None, 0, 3])
def test_as_strided_scatter(offset: int | None) -> None:
    x, src = torch.randn(4, 5), torch.randn(2, 3)
    want = torch.as_strided_scatter(x, src, (2, 3), (7, 2), offset)
    torch.testing.assert_close(as_strided_scatter(x, src, [2, 3], [7, 2], offset), want)
