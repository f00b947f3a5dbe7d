"""Forms for symbolic numbers compute the same as torch's operators from plain ones, at the edges too."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fx_onnx.decompositions import symbolic_numbers
from fx_onnx.decompositions.registry import SYMBOLIC, aten

X = torch.randn(2, 3, 5, 6, generator=torch.Generator().manual_seed(0))
NANS = torch.tensor([torch.nan, torch.inf, -torch.inf, 1.25])

CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    *((aten.diagonal.default, (X, offset, -2, -1), {}) for offset in (-9, -4, 0, 2, 6)),
    (aten.diagonal.default, (X, 1, 3, 0), {}),
    (aten.linalg_diagonal.default, (X,), {"offset": 2, "dim1": 1}),
    *((aten.diag_embed.default, (X[0, 0], offset), {}) for offset in (-2, 0, 3)),
    (aten.diag_embed.default, (X[0, 0], 1, 0, 2), {}),
    *((aten.diag.default, (x, 1), {}) for x in (X[0, 0], X[0, 0, 0])),
    *((op, (4, 6, offset), {}) for op in (aten.tril_indices.default, aten.triu_indices.default) for offset in (-2, 7)),
    (aten.one_hot.default, (torch.tensor([[0, 2], [1, 3]]), 5), {}),
    (aten.unfold.default, (X, 2, 3, 2), {}),
    (aten.unfold.default, (X, -1, 6, 1), {}),
    *((aten.vander.default, (X[0, 0, 0], 4, flag), {}) for flag in (False, True)),
    *((op, (size, flag), {}) for op in (aten.hann_window.periodic, aten.hamming_window.periodic) for size in (1, 6)
      for flag in (True, False)),
    (aten.hamming_window.periodic_alpha_beta, (7, True, 0.4, 0.7), {}),
    (aten.blackman_window.default, (6,), {"dtype": torch.float64}),
    (aten.avg_pool1d.default, (X[0], [4], [2], [2]), {}),
    (aten.avg_pool1d.default, (X[0], [4], [3], [1], True, False), {}),
    (aten.avg_pool2d.default, (X, [2, 3], [], [1, 0], True, True), {}),
    (aten.avg_pool2d.default, (X, [2, 3], [], [0, 0], False, True, 5), {}),
    (aten.max_pool1d.default, (X[0], [3], [2], [1], [2]), {}),
    (aten.max_pool2d.default, (X, [2, 3], [], [1, 1], [3, 1], True), {}),
    (aten.max_pool2d_with_indices.default, (X, [3, 2], [2, 1], [1, 1], [1, 2]), {}),
    (aten.layer_norm.default, (X, [6], X[0, 0, 0], X[1, 0, 0], 0.3), {}),
    (aten.group_norm.default, (X.reshape(2, 6, 15), 3, X[0, 0, 0], X[1, 0, 0], 0.3), {}),
    (aten.batch_norm.default, (X, None, None, X[0, :, 0, 0], X[1, :, 0, 0].abs(), False, 0.1, 0.3, False), {}),
    (aten.scaled_dot_product_attention.default, (X, X, X), {"scale": 0.3}),
    (aten.pad.default, (X, [1, 2, -1, 0], "constant", 0.5), {}),
    (aten.nan_to_num.default, (NANS,), {}),
    (aten.nan_to_num.default, (NANS, 1.0, 2.0, 3.0), {}),
    (aten.nan_to_num.default, (torch.arange(3), 1.0), {}),
    *((aten.round.decimals, (X * 321,), {"decimals": decimals}) for decimals in (-2, 0, 3)),
    *((op, (X,), {"dx": 0.5, "dim": 2}) for op in (aten.trapezoid.dx, aten.cumulative_trapezoid.dx)),
    (aten.quantile.scalar, (X, 0.3, 2), {"interpolation": "lower"}),
    (aten.nanquantile.scalar, (X, 0.3, 2, True), {}),
    *((aten.linalg_vector_norm.default, (X, order, [1, 2], True), {}) for order in (0, 1, 2, 2.5, math.inf, -math.inf)),
    (aten.dropout.default, (X, 0.5, False), {}),
    (aten.softshrink.default, (NANS, 0.5), {}),
    (aten.im2col.default, (X, [2, 3], [1, 2], [1, 0], [2, 1]), {}),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "args", "kwargs"), CALLS, ids=lambda value: str(value) if callable(value) else "")
def test_a_form_computes_the_same_as_its_operator(operator: Any, args: Any, kwargs: Any) -> None:
    torch.testing.assert_close(SYMBOLIC[operator](*args, **kwargs), operator(*args, **kwargs), equal_nan=True)


def test_all_forms_are_there_whatever_is_imported_first() -> None:
    """Here the file is the first one of the decompositions, if the tests of this file run alone."""
    assert set(symbolic_numbers._DECOMPOSED) <= SYMBOLIC.keys()


@pytest.mark.parametrize("steps", [1, 2, 7, 10])
@pytest.mark.parametrize("ends", [(0.0, 1.0), (-3, 11), (5, 5)])
@pytest.mark.parametrize("dtype", [None, torch.float64, torch.int64])
def test_linspace(steps: int, ends: tuple[float, float], dtype: torch.dtype | None) -> None:
    """All values are those of torch, including the last one."""
    got, want = symbolic_numbers.linspace(*ends, steps, dtype=dtype), torch.linspace(*ends, steps, dtype=dtype)
    assert got.dtype == want.dtype
    torch.testing.assert_close(got, want, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "resize",
    [
        lambda x, **options: F.interpolate(x, size=(3, 4), **options),
        lambda x, **options: F.interpolate(x, scale_factor=1.5, mode="bilinear", align_corners=True, **options),
    ],
)
def test_interpolate_without_symbols_is_that_of_torch(resize: Callable[..., Tensor]) -> None:
    assert torch.equal(resize(X), resize(X, recompute_scale_factor=None))
