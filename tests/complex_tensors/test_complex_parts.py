"""Operators applied to the real and imaginary parts against the operators on complex tensors."""

from typing import Any

import pytest
import torch
from torch import Tensor

from fx_onnx.complex_tensors.complex_parts import BY_PARTS, CREATING, by_parts, name_of
from tests.compare import assert_close
from tests.complex_tensors.harness import from_pairs, to_pair
from tests.decompositions.harness import complex_randn

aten = torch.ops.aten
MASK = torch.tensor([[True, False, True], [False, False, True]])

CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (aten.reshape.default, (complex_randn(2, 3), (3, 2)), {}),
    (aten.split.Tensor, (complex_randn(4, 2), 2), {}),
    (aten.where.self, (MASK, complex_randn(2, 3), torch.randn(2, 3, dtype=torch.float64)), {}),
    (aten.masked_fill.Scalar, (complex_randn(2, 3), MASK, 1 + 2j), {}),
    (aten.index_put.default, (complex_randn(3), [torch.tensor([0, 2])], complex_randn(2)), {}),
    (aten.index_add.default, (complex_randn(3), 0, torch.tensor([0, 0]), complex_randn(2)), {"alpha": 2}),
    (aten.constant_pad_nd.default, (complex_randn(2, 3), [1, 1], 3.0), {}),
    (aten.sum.dim_IntList, (complex_randn(2, 3), [0]), {}),
    (aten.sum.dim_IntList, (torch.randn(2, 3), [0]), {"dtype": torch.complex128}),
    (aten.mean.dim, (complex_randn(2, 3), [1], True), {}),
    (aten.tril.default, (complex_randn(3, 3), -1), {}),
    (aten.full.default, ([2, 3], 1 - 1j), {"dtype": torch.complex128}),
    (aten.full_like.default, (complex_randn(2), 1j), {}),
    (aten.ones_like.default, (complex_randn(2),), {}),
    (aten.eye.default, (3,), {"dtype": torch.complex128}),
]


@pytest.mark.parametrize(("target", "args", "kwargs"), CALLS, ids=[str(call[0]) for call in CALLS])
def test_calls(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert name_of(target) in BY_PARTS | CREATING
    result = by_parts(target, torch.float64)(*map(to_pair, args), **kwargs)
    assert_close(from_pairs(result), target(*args, **kwargs))


def test_every_name_is_an_operator() -> None:
    assert not [name for name in BY_PARTS | CREATING if not hasattr(aten, name)]


def test_name_of_an_operator() -> None:
    assert name_of(aten.add.Tensor) == "add"
    assert name_of(torch.sin) == "" and not isinstance(torch.sin, Tensor)
