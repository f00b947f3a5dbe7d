"""Dims are renamed everywhere at once; tests/program/test_onnx_program.py tests the method of ONNXProgram."""

import onnx
import onnx_ir as ir

from fx_onnx.program.model_changes import rename_dims


def test_two_dims_swap_their_names_in_expressions_too() -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[n,m] x) => (float[n,m] y) { y = Relu(x) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    model.graph.outputs[0].shape = ir.Shape(["2*n", "m"])
    assert rename_dims(model, {"n": "m", "m": "n", "k": "j"}) == {"n", "m"}
    assert str(model.graph.inputs[0].shape) == "[m,n]"
    assert str(model.graph.outputs[0].shape) == "[2*m,n]"
