"""The module fx_onnx.errors has the names of torch.onnx.errors."""

from __future__ import annotations

import pytest
import torch.onnx.errors
from torch import Tensor, nn

import fx_onnx


class Refused(torch.autograd.Function):
    """A function whose symbolic method refuses its argument."""

    @staticmethod
    def symbolic(g, x):
        raise fx_onnx.errors.SymbolicValueError("The rank is odd.", x)

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.relu()


class Model(nn.Module):
    """Calls the function."""

    def forward(self, x: Tensor) -> Tensor:
        return Refused.apply(x)


def test_the_names_are_those_of_torch() -> None:
    assert {*torch.onnx.errors.__all__, "OnnxExporterError"} == set(fx_onnx.errors.__all__)
    for name in ("OnnxExporterError", "OnnxExporterWarning", "UnsupportedOperatorError"):
        assert getattr(fx_onnx.errors, name) is getattr(fx_onnx, name)


def test_a_symbolic_function_raises_torchs_error() -> None:
    with pytest.raises(fx_onnx.TranslationError, match=r"SymbolicValueError: The rank is odd\."):
        fx_onnx.export(Model(), (torch.ones(3),))
