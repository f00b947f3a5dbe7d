"""The modules with the symbolic functions of torch.onnx are refused in one sentence."""

from __future__ import annotations

import importlib

import pytest

import fx_onnx


@pytest.mark.parametrize("opset", range(7, 21))
def test_the_symbolic_opsets_are_refused_in_one_sentence(opset: int) -> None:
    stand_in = importlib.import_module(f"fx_onnx.symbolic_opset{opset}")
    statement = f"from fx_onnx.symbolic_opset{opset} import linear"
    for call in (lambda: stand_in.linear, lambda: exec(statement)):
        with pytest.raises(fx_onnx.OnnxExporterError, match=r"fx_onnx has no function linear of") as found:
            call()
        assert isinstance(found.value, ImportError)
    assert not hasattr(stand_in, "__file__")
