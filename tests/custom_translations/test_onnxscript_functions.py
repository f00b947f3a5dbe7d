"""onnxscript functions: their arguments become inputs and attributes, and inner functions come along."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import onnxscript
import pytest
from onnxscript import opset18

from fx_onnx.custom_translations.onnxscript_functions import call_script, trace
from tests.translation.emitters import emitter, kinds, value

DOMAIN = onnxscript.values.Opset("tests.functions", 2)


@onnxscript.script(DOMAIN)
def inner(x):  # type: ignore[no-untyped-def]
    return opset18.Relu(x)


@onnxscript.script(DOMAIN)
def outer(x, alpha: float):  # type: ignore[no-untyped-def]
    return opset18.LeakyRelu(inner(x), alpha=alpha)


def test_a_call_defines_the_function_and_the_functions_that_it_calls() -> None:
    op = emitter()
    x = value(op, ir.DataType.FLOAT, 3)
    results = [call_script(outer, op, x, 0.5), call_script(outer, op, x, alpha=0.25)]
    assert all(isinstance(result, ir.Value) for result in results)
    assert kinds(op) == ["outer", "outer"]
    assert [node.attributes["alpha"].as_float() for node in op.graph] == [0.5, 0.25]
    assert sorted(name for _, name, _ in op.functions) == ["inner", "outer"]
    assert op.graph.opset_imports["tests.functions"] == 2


def test_too_many_arguments_are_refused() -> None:
    op = emitter()
    x = value(op, ir.DataType.FLOAT, 3)
    with pytest.raises(TypeError, match="outer got arguments it does not have"):
        call_script(outer, op, x, 0.5, x)


def test_eager_calls_emit_nodes() -> None:
    def function(x: Any) -> Any:
        return opset18.Add(opset18.Relu(x), inner(x))

    op = emitter()
    trace(function, op, value(op, ir.DataType.FLOAT, 3))
    assert sorted(kinds(op)) == ["Add", "Relu", "inner"]
