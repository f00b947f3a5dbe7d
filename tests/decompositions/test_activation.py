"""Decompositions of activation functions against torch."""

import pytest
import torch

from fx_onnx.decompositions import DECOMPOSITIONS
from tests.decompositions.harness import assert_matches_torch, evenly_spaced, special_values

aten = torch.ops.aten


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_activations(dtype: torch.dtype) -> None:
    x = evenly_spaced(-6, 6, dtype)
    assert_matches_torch(aten.silu.default, x)
    assert_matches_torch(aten.gelu.default, x)
    assert_matches_torch(aten.gelu.default, x, approximate="tanh")
    assert_matches_torch(aten.elu.default, x, 0.5, 2.0, 3.0)
    assert_matches_torch(aten.celu.default, x, 0.7)
    assert_matches_torch(aten.softplus.default, x, 2.0, 1.0)
    assert_matches_torch(aten.rrelu.default, x)


def test_special_numbers() -> None:
    assert_matches_torch(aten.elu.default, special_values())
    assert_matches_torch(aten.celu.default, special_values())
    assert_matches_torch(aten.softplus.default, special_values())


def test_log_sigmoid() -> None:
    got, _ = DECOMPOSITIONS[aten.log_sigmoid_forward.default](evenly_spaced(-40, 40))
    torch.testing.assert_close(got, torch.nn.functional.logsigmoid(evenly_spaced(-40, 40)))


def test_softmax_of_a_masked_row_is_zero() -> None:
    x = torch.tensor([[1.0, 2.0], [-torch.inf, -torch.inf], [-torch.inf, 0.0]])
    assert_matches_torch(aten._safe_softmax.default, x, -1)
    assert_matches_torch(aten._safe_softmax.default, x, 1, dtype=torch.float64)
