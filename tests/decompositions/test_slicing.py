"""Decompositions of writes along diagonals and at strides against torch."""

import pytest
import torch

import fx_onnx
from fx_onnx.decompositions.slicing import as_strided, as_strided_scatter, diag_embed, diagonal_scatter, diff


@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 3])
@pytest.mark.parametrize("dims", [(0, 1), (1, 2), (-1, 0)])
def test_diagonals(offset: int, dims: tuple[int, int]) -> None:
    x = torch.randn(4, 5, 6)
    src = torch.randn(x.diagonal(offset, *dims).shape)
    torch.testing.assert_close(diagonal_scatter(x, src, offset, *dims), torch.diagonal_scatter(x, src, offset, *dims))
    torch.testing.assert_close(diag_embed(x, offset, *dims), torch.diag_embed(x, offset, *dims))


@pytest.mark.parametrize("offset", [None, 0, 3])
@pytest.mark.parametrize("x", [torch.randn(4, 5), torch.randn(4, 5).t(), torch.randn(2, 5, 2).permute(1, 2, 0)])
def test_strides_count_the_elements_of_the_storage(x: torch.Tensor, offset: int | None) -> None:
    src = torch.randn(2, 3)
    want = torch.as_strided_scatter(x, src, (2, 3), (7, 2), offset)
    torch.testing.assert_close(as_strided_scatter(x, src, [2, 3], [7, 2], offset), want)
    torch.testing.assert_close(as_strided(x, [2, 3], [7, 2], offset), x.as_strided((2, 3), (7, 2), offset))


@pytest.mark.parametrize("x", [torch.randn(4, 5)[:, ::2], torch.randn(4, 5)[1:], torch.randn(4, 1).expand(4, 5)])
def test_a_part_of_a_storage_is_refused(x: torch.Tensor) -> None:
    with pytest.raises(NotImplementedError, match="Call it on a clone"):
        as_strided(x, [2], [1])
    with pytest.raises(NotImplementedError, match="Call it on a clone"):
        as_strided_scatter(x, torch.randn(2), [2], [1])


@pytest.mark.parametrize("n", [0, 1, 2, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.bool])
def test_diff(n: int, dtype: torch.dtype) -> None:
    for size in (0, 1, 3, 6):
        x, more = torch.randint(0, 2, (2, size)).to(dtype), torch.ones(2, 2, dtype=dtype)
        torch.testing.assert_close(diff(x, n), torch.diff(x, n))
        torch.testing.assert_close(diff(x, n, 1, more, more), torch.diff(x, n, 1, more, more))


def test_differences_of_a_dynamic_batch_of_one_in_the_example() -> None:
    class Steps(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            positions = torch.arange(x.shape[1])[None].repeat(x.shape[0], 1)
            return torch.diff(positions, prepend=positions[:, :1] - 1)

    program = fx_onnx.export(Steps(), (torch.ones(1, 3),), dynamic_shapes=({0: "batch", 1: "length"},), verify=True)
    assert program(torch.ones(4, 2))[0].tolist() == [[1, 1]] * 4


def test_differences_of_a_dynamic_size_that_is_smaller_than_their_order() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.diff(x, 3, 0)

    program = fx_onnx.export(Model(), (torch.randn(6, 2),), dynamic_shapes=({0: "n"},))
    assert not program.dims.conditions
    for size in (6, 4, 3, 1, 0):
        x = torch.randn(size, 2)
        torch.testing.assert_close(program(x)[0], Model()(x))
