"""Activations, against torch."""

import pytest
import torch

from fx_onnx.decompositions import DECOMPOSITIONS
from tests.decompositions.against import against, special, spread

aten = torch.ops.aten


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_activations(dtype: torch.dtype) -> None:
    x = spread(-6, 6, dtype)
    against(aten.silu.default, x)
    against(aten.gelu.default, x)
    against(aten.gelu.default, x, approximate="tanh")
    against(aten.elu.default, x, 0.5, 2.0, 3.0)
    against(aten.celu.default, x, 0.7)
    against(aten.softplus.default, x, 2.0, 1.0)
    against(aten.rrelu.default, x)


def test_special_numbers() -> None:
    against(aten.elu.default, special())
    against(aten.celu.default, special())
    against(aten.softplus.default, special())


def test_log_sigmoid() -> None:
    got, _ = DECOMPOSITIONS[aten.log_sigmoid_forward.default](spread(-40, 40))
    torch.testing.assert_close(got, torch.nn.functional.logsigmoid(spread(-40, 40)))


def test_a_masked_row_is_zero() -> None:
    x = torch.tensor([[1.0, 2.0], [-torch.inf, -torch.inf], [-torch.inf, 0.0]])
    against(aten._safe_softmax.default, x, -1)
    against(aten._safe_softmax.default, x, 1, dtype=torch.float64)
