"""Decompositions of scatters with a reduction against torch."""

import pytest
import torch

from fx_onnx.decompositions.scatter import index_reduce, scatter_reduce, segment_reduce, unsafe_masked_index
from tests.decompositions.harness import assert_matches_torch

aten = torch.ops.aten

REDUCTIONS = ["prod", "mean", "amax", "amin"]


def tensor(dtype: torch.dtype, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(-5, 6, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("reduce", ["sum", *REDUCTIONS])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int32])
def test_scatter_reduce(reduce: str, include_self: bool, dtype: torch.dtype) -> None:
    x, src = tensor(dtype, 3, 4), tensor(dtype, 5, 4, seed=1)
    index = torch.tensor([0, 2, 0, 0, 2]).unsqueeze(1).expand(5, 4)
    want = torch.scatter_reduce(x, 0, index, src, reduce, include_self=include_self)
    torch.testing.assert_close(scatter_reduce(x, 0, index, src, reduce, include_self=include_self), want)


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_index_reduce(reduce: str, include_self: bool, dtype: torch.dtype) -> None:
    x, src, index = tensor(dtype, 4, 3), tensor(dtype, 4, 5, seed=1), torch.tensor([0, 2, 0, 0, 2])
    want = torch.index_reduce(x, 1, index, src, reduce, include_self=include_self)
    torch.testing.assert_close(index_reduce(x, 1, index, src, reduce, include_self=include_self), want)


def test_unsafe_masked_index() -> None:
    x, mask, index = tensor(torch.float32, 3, 4), torch.tensor([True, False, True]), torch.tensor([2, 99, 0])
    torch.testing.assert_close(unsafe_masked_index(x, mask, [None, index], 7.0)[:, mask], x[:, index[mask]])
    assert (unsafe_masked_index(x, mask, [None, index], 7.0)[:, 1] == 7.0).all()


def test_unsafe_masked_index_put_accumulate() -> None:
    x, mask, index = tensor(torch.float32, 3, 4), torch.tensor([True, False, True]), torch.tensor([2, 99, 0])
    assert_matches_torch(
        aten._unsafe_masked_index_put_accumulate.default,
        x,
        mask,
        [None, index],
        tensor(torch.float32, 3, 3),
        tolerance=0.0,
    )


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("initial", [None, 2.0])
@pytest.mark.parametrize("axis", [0, 1])
def test_segment_reduce(reduce: str, initial: float | None, axis: int) -> None:
    x = torch.randn(5, 5, 2)
    lengths = torch.tensor([2, 0, 3] if axis == 0 else [[2, 0, 3], [0, 1, 4], [5, 0, 0], [1, 1, 3], [2, 3, 0]])
    options = {"axis": axis, "initial": initial}
    want = torch.segment_reduce(x, reduce, lengths=lengths, **options)
    torch.testing.assert_close(segment_reduce(x, reduce, lengths=lengths, **options), want, equal_nan=True)
    offsets = torch.nn.functional.pad(lengths.cumsum(-1), [1, 0])
    torch.testing.assert_close(segment_reduce(x, reduce, offsets=offsets, **options), want, equal_nan=True)


def test_segment_reduce_ignores_elements_outside_the_offsets() -> None:
    x, offsets = torch.randn(6), torch.tensor([1, 3, 5])
    want = torch.segment_reduce(x, "sum", offsets=offsets)
    torch.testing.assert_close(segment_reduce(x, "sum", offsets=offsets), want)
