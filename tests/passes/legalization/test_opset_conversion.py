"""Opsets below the native ones: the model is converted, or the export fails with one sentence."""

import onnx_ir as ir
import pytest
import torch
from torch import nn

import fx_onnx
from fx_onnx import OnnxExporterError
from fx_onnx.core.opsets import MINIMUM_OPSET
from fx_onnx.passes.legalization.opset_conversion import convert_opset
from tests.compare import assert_close
from tests.passes.checking import model

X = torch.randn(3, 4)


@pytest.mark.parametrize("opset", [16, 17])
def test_converted(opset: int) -> None:
    """A network of linear layers runs at opsets 16 and 17."""
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    program = fx_onnx.export(module, (X,), opset_version=opset)
    assert program.model.graph.opset_imports[""] == opset
    assert_close(program(X), module(X))


def test_a_model_in_the_wanted_opset_is_not_changed() -> None:
    """The model object and its bytes stay the same."""
    program = model("g (float[N] x) => (float[N] y) { y = Relu(x) }", opset=MINIMUM_OPSET)
    before = ir.serde.serialize_model(program).SerializeToString()
    assert convert_opset(program, MINIMUM_OPSET) is program
    assert ir.serde.serialize_model(program).SerializeToString() == before


def test_an_operator_without_a_conversion_is_an_error() -> None:
    """LayerNormalization does not exist before opset 17."""
    module = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Softmax(-1)).eval()
    with pytest.raises(OnnxExporterError, match="cannot be converted from opset 18 to opset 7"):
        fx_onnx.export(module, (X,), opset_version=7)
