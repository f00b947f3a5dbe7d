"""Each native opset gives a valid model with the module's results; an unknown opset is refused."""

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import fx_onnx
from fx_onnx import ArgumentError
from fx_onnx.onnx_model import opsets
from fx_onnx.onnx_model.opsets import DEFAULT_OPSET, MAXIMUM_OPSET, MINIMUM_NATIVE_OPSET
from tests.compare import assert_close


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2), nn.Softmax(-1)).eval()


X = torch.randn(3, 4)


@pytest.mark.parametrize("opset", range(MINIMUM_NATIVE_OPSET, MAXIMUM_OPSET + 1))
def test_native(opset: int) -> None:
    module = net()
    program = fx_onnx.export(module, (X,), opset_version=opset)
    assert program.model.graph.opset_imports[""] == opset
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert_close(program(X), module(X))


@pytest.mark.parametrize("opset", [6, MAXIMUM_OPSET + 1, "20", True, 20.0])
def test_unknown(opset: object) -> None:
    with pytest.raises(ArgumentError, match="opset_version must be a number from"):
        fx_onnx.export(net(), (X,), opset_version=opset)  # type: ignore[arg-type]


def test_default() -> None:
    assert fx_onnx.export(net(), (X,)).model.graph.opset_imports[""] == DEFAULT_OPSET


def test_integers_of_numpy() -> None:
    version = opsets.check(np.int64(17))  # type: ignore[arg-type]
    assert version == 17
    assert type(version) is int
