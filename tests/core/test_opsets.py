"""Every native opset gives a valid model that is right; older ones are converted or refused in one sentence."""

import onnx
import pytest
import torch
from torch import nn

import fx_onnx
from fx_onnx import ArgumentError, OnnxExporterError
from fx_onnx.core.opsets import DEFAULT_OPSET, MAXIMUM_OPSET, MINIMUM_OPSET
from tests.compare import assert_close


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2), nn.Softmax(-1)).eval()


X = torch.randn(3, 4)


@pytest.mark.parametrize("opset", range(MINIMUM_OPSET, MAXIMUM_OPSET + 1))
def test_native(opset: int) -> None:
    module = net()
    program = fx_onnx.export(module, (X,), opset_version=opset)
    assert program.model.graph.opset_imports[""] == opset
    onnx.checker.check_model(program.model_proto, full_check=True)
    assert_close(program(X), module(X))


@pytest.mark.parametrize("opset", [16, 17])
def test_converted(opset: int) -> None:
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    program = fx_onnx.export(module, (X,), opset_version=opset)
    assert program.model.graph.opset_imports[""] == opset
    assert_close(program(X), module(X))


def test_what_cannot_be_converted_is_refused() -> None:
    with pytest.raises(OnnxExporterError, match="cannot be converted from opset 18 to opset 7"):
        fx_onnx.export(net(), (X,), opset_version=7)


@pytest.mark.parametrize("opset", [6, MAXIMUM_OPSET + 1, "20", True, 20.0])
def test_unknown(opset: object) -> None:
    with pytest.raises(ArgumentError, match="opset_version must be a number from"):
        fx_onnx.export(net(), (X,), opset_version=opset)  # type: ignore[arg-type]


def test_default() -> None:
    assert fx_onnx.export(net(), (X,)).model.graph.opset_imports[""] == DEFAULT_OPSET
