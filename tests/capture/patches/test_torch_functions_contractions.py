"""Products of three and more operands, whose order opt_einsum chooses by their sizes."""

from collections.abc import Callable

import opt_einsum
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import fx_onnx
from tests.capture.sample_modules import Function

EQUATION = "bij,bjk,bkl->bil"


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.einsum(EQUATION, x, x.mT, x),
        lambda x: torch.einsum("ij,jk,kl,lm->im", x[0], x[0].mT, x[0], x[0].mT),
        lambda x: opt_einsum.contract(EQUATION, x, x.mT, x),
        lambda x: torch.einsum("ij,jk,kl->il", x[x[:, 0, 0] > 0].flatten(1), x.flatten(1).mT, x.flatten(1)),
    ],
)
def test_the_sizes_stay_dynamic(function: Callable[[Tensor], Tensor]) -> None:
    model = Function(function)
    program = fx_onnx.export(model, (torch.randn(3, 4, 5),), dynamic_shapes=({0: "b", 1: "i", 2: "j"},))
    assert not program.findings
    for shape in ((2, 3, 7), (4, 9, 2), (1, 1, 1)):
        x = torch.randn(shape)
        assert_close(program(x), (model(x),))
