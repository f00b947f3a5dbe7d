"""Decompositions of normalizations against torch."""

import pytest
import torch

from tests.decompositions.harness import assert_matches_torch, randn

aten = torch.ops.aten
x, w, b = randn(4, 6, 5), randn(6, seed=1), randn(6, seed=2)
mean, var = randn(6, seed=3), randn(6, seed=4).abs()


@pytest.mark.parametrize("weights", [(None, None), (w, b), (w, None)])
def test_batch(weights: tuple[torch.Tensor | None, torch.Tensor | None]) -> None:
    for shape in ((4, 6), (4, 6, 5), (4, 6, 5, 2)):
        assert_matches_torch(aten.batch_norm.default, randn(*shape), *weights, None, None, True, 0.1, 1e-5, False)
        assert_matches_torch(aten._native_batch_norm_legit.no_stats, randn(*shape), *weights, True, 0.1, 1e-5)
    assert_matches_torch(aten._native_batch_norm_legit_functional.default, x, *weights, mean, var, True, 0.1, 1e-5)
    assert_matches_torch(aten.instance_norm.default, x, *weights, None, None, True, 0.1, 1e-5, False)
    assert_matches_torch(aten.instance_norm.default, x, *weights, mean, var, False, 0.1, 1e-5, False)


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 5), (0, 6, 5), (2, 6, 3, 2)])
@pytest.mark.parametrize("groups", [1, 3, 6])
def test_group(shape: tuple[int, ...], groups: int) -> None:
    assert_matches_torch(aten.group_norm.default, randn(*shape), groups, w, b)
    assert_matches_torch(aten.group_norm.default, randn(*shape), groups)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_root_mean_square(dtype: torch.dtype) -> None:
    y = randn(4, 5, dtype=dtype)
    assert_matches_torch(aten.rms_norm.default, y, [5], randn(5, dtype=dtype))
    assert_matches_torch(aten.rms_norm.default, y, [4, 5], None, 0.1)


def test_native() -> None:
    assert_matches_torch(aten.native_layer_norm.default, x, [5], w[:5], b[:5], 1e-5)
    assert_matches_torch(aten.native_group_norm.default, x, w, b, 4, 6, 5, 3, 1e-5)
    assert_matches_torch(aten.native_batch_norm.default, x, w, b, None, None, True, 0.1, 1e-5)
