"""Normalizations, against torch."""

import pytest
import torch

from tests.decompositions.harness import check, random

aten = torch.ops.aten
x, w, b = random(4, 6, 5), random(6, seed=1), random(6, seed=2)
mean, var = random(6, seed=3), random(6, seed=4).abs()


@pytest.mark.parametrize("weights", [(None, None), (w, b), (w, None)])
def test_batch(weights: tuple[torch.Tensor | None, torch.Tensor | None]) -> None:
    for shape in ((4, 6), (4, 6, 5), (4, 6, 5, 2)):
        check(aten.batch_norm.default, random(*shape), *weights, None, None, True, 0.1, 1e-5, False)
        check(aten._native_batch_norm_legit.no_stats, random(*shape), *weights, True, 0.1, 1e-5)
    check(aten._native_batch_norm_legit_functional.default, x, *weights, mean, var, True, 0.1, 1e-5)
    check(aten.instance_norm.default, x, *weights, None, None, True, 0.1, 1e-5, False)
    check(aten.instance_norm.default, x, *weights, mean, var, False, 0.1, 1e-5, False)


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 5), (0, 6, 5), (2, 6, 3, 2)])
@pytest.mark.parametrize("groups", [1, 3, 6])
def test_group(shape: tuple[int, ...], groups: int) -> None:
    check(aten.group_norm.default, random(*shape), groups, w, b)
    check(aten.group_norm.default, random(*shape), groups)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_root_mean_square(dtype: torch.dtype) -> None:
    y = random(4, 5, dtype=dtype)
    check(aten.rms_norm.default, y, [5], random(5, dtype=dtype))
    check(aten.rms_norm.default, y, [4, 5], None, 0.1)


def test_native() -> None:
    check(aten.native_layer_norm.default, x, [5], w[:5], b[:5], 1e-5)
    check(aten.native_group_norm.default, x, w, b, 4, 6, 5, 3, 1e-5)
    check(aten.native_batch_norm.default, x, w, b, None, None, True, 0.1, 1e-5)
