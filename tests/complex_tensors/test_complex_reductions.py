"""Complex decompositions of norms, variances, products and sums of exponentials against torch."""

from typing import Any

import pytest
import torch

from tests.complex_tensors.harness import assert_complex_matches_torch
from tests.decompositions.harness import complex_randn

aten = torch.ops.aten
Z = complex_randn(3, 4)

CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (aten.prod.default, (Z,), {}),
    (aten.prod.dim_int, (Z, 1, True), {}),
    (aten.cumprod.default, (Z, 0), {}),
    (aten.linalg_vector_norm.default, (Z,), {}),
    (aten.linalg_vector_norm.default, (Z, 1, [0], True), {}),
    (aten.linalg_vector_norm.default, (Z, float("inf"), [1]), {}),
    (aten.norm.Scalar, (Z, 3), {}),
    (aten.norm.ScalarOpt_dim, (Z, None, [1]), {}),
    (aten.var.default, (Z,), {}),
    (aten.var.dim, (Z, [0], False), {}),
    (aten.var.correction, (Z, [1]), {"correction": 2, "keepdim": True}),
    (aten.std.default, (Z,), {}),
    (aten.std.dim, (Z, [0]), {}),
    (aten.std.correction, (Z,), {"correction": 0}),
    (aten.softmax.int, (Z, 1, torch.float64), {}),
    (aten.log_softmax.int, (Z, 0, torch.float64), {}),
    (aten.logsumexp.default, (Z, [0]), {}),
    (aten.logaddexp.default, (Z, Z.conj() * 2), {}),
    (aten.logcumsumexp.default, (Z, 1), {}),
    (aten.isclose.default, (Z, Z + 1e-9), {}),
    (aten.isclose.default, (Z, Z * 1.1), {}),
    (aten.isnan.default, (torch.tensor([complex(0, float("nan")), 1j]),), {}),
    (aten.masked_select.default, (Z, torch.tensor([True, False, True, True])), {}),
    (aten.copy.default, (Z, complex_randn(4)), {}),
    (aten.rms_norm.default, (Z, [4], complex_randn(4), 0.5), {}),
    (aten.as_strided.default, (Z, [2, 2], [4, 1], 1), {}),
]


@pytest.mark.parametrize(("target", "args", "kwargs"), CALLS, ids=[str(call[0]) for call in CALLS])
def test_calls(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert_complex_matches_torch(target, *args, **kwargs)


@pytest.mark.parametrize("name", ["var_mean", "std_mean"])
def test_two_results(name: str) -> None:
    assert_complex_matches_torch(getattr(aten, name).default, Z)
    assert_complex_matches_torch(getattr(aten, name).dim, Z, [1])
    assert_complex_matches_torch(getattr(aten, name).correction, Z, [0], correction=0, keepdim=True)
