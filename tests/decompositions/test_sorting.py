"""Decompositions of order statistics and searches against torch."""

import pytest
import torch

from fx_onnx.decompositions.sorting import (
    bucketize,
    kthvalue,
    median_dim,
    mode,
    nanmedian_dim,
    nanquantile,
    quantile,
    searchsorted,
)

DTYPES = [torch.float32, torch.float64, torch.int64, torch.int32]


def values(dtype: torch.dtype, *shape: int, nan: bool = False) -> torch.Tensor:
    x = torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    return x.masked_fill(x == 2, float("nan")) if nan and dtype.is_floating_point else x


def assert_values_and_indices(
    x: torch.Tensor, found: tuple[torch.Tensor, torch.Tensor], want: torch.Tensor, dim: int
) -> None:
    """Checks the values, and that x has them at the indices; the choice between equal elements is free."""
    torch.testing.assert_close(found[0], want, equal_nan=True)
    if x.dim():
        torch.testing.assert_close(x.gather(dim, found[1].unsqueeze(dim)).squeeze(dim), want, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 3, 5), ()])
def test_order_statistics(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    for dim in range(-1, max(len(shape), 1)):
        x = values(dtype, *shape)
        assert_values_and_indices(x, kthvalue(x, 1, dim), torch.kthvalue(x, 1, dim)[0], dim)
        assert_values_and_indices(x, mode(x, dim), torch.mode(x, dim)[0], dim)
        for nan in (False, True):
            x = values(dtype, *shape, nan=nan)
            assert_values_and_indices(x, median_dim(x, dim), torch.median(x, dim)[0], dim)
            assert_values_and_indices(x, nanmedian_dim(x, dim), torch.nanmedian(x, dim)[0], dim)
            torch.testing.assert_close(kthvalue(x, 1, dim)[0], torch.kthvalue(x, 1, dim)[0], equal_nan=True)
            size = x.shape[dim] if shape else 1
            torch.testing.assert_close(kthvalue(x, size, dim)[0], torch.kthvalue(x, size, dim)[0], equal_nan=True)


@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
@pytest.mark.parametrize(
    ("shape", "dim"), [((5, 4), 1), ((5, 4), -2), ((5, 4), None), ((1, 3), 0), ((), None), ((), 0)]
)
def test_quantiles(shape: tuple[int, ...], dim: int | None, interpolation: str) -> None:
    x = torch.randn(shape)
    for data in (x, x.masked_fill(x > 0.5, float("nan")), torch.full_like(x, float("nan"))):
        for q in (torch.tensor(0.4), torch.tensor([0.0, 0.3, 0.5, 1.0])):
            for keepdim in (False, True):
                options = {"dim": dim, "keepdim": keepdim, "interpolation": interpolation}
                for own, torchs in ((quantile, torch.quantile), (nanquantile, torch.nanquantile)):
                    want = torchs(data, q, **options)
                    torch.testing.assert_close(own(data, q, **options), want, equal_nan=True)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("out_int32", [False, True])
def test_searches(right: bool, out_int32: bool) -> None:
    boundaries = torch.tensor([-1.0, 0.0, 0.5, 0.5, 2.0])
    x = torch.tensor([[-3.0, -1.0, 0.5], [0.7, float("nan"), 9.0]])
    options = {"right": right, "out_int32": out_int32}
    torch.testing.assert_close(searchsorted(boundaries, x, **options), torch.searchsorted(boundaries, x, **options))
    torch.testing.assert_close(bucketize(x, boundaries, **options), torch.bucketize(x, boundaries, **options))
    shuffled, sorter = boundaries.flip(0), torch.arange(4, -1, -1)
    want = torch.searchsorted(shuffled, x, sorter=sorter, **options)
    torch.testing.assert_close(searchsorted(shuffled, x, sorter=sorter, **options), want)
