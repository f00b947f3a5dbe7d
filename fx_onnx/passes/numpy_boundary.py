"""Inputs and outputs in dtypes that NumPy has, for a model that a script without other packages runs."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.onnx_model.dtypes import is_float8
from fx_onnx.onnx_model.names import Names
from fx_onnx.passes.traversal import all_values

__all__ = ["with_numpy_boundary"]


def with_numpy_boundary(model: ir.Model) -> ir.Model:
    """Makes the inputs and outputs of bfloat16 and float8 float32 ones of the same names, in place.

    A Cast follows such an input and precedes such an output, so the model computes as before.
    """
    graph = model.graph
    names = Names(value.name for value in all_values(graph))
    for index, value in enumerate(list(graph.outputs)):
        if _lacks_numpy(value):
            graph.outputs[index] = _cast_output(graph, value, names)
    for index, value in enumerate(list(graph.inputs)):
        if _lacks_numpy(value):
            graph.inputs[index] = _cast_input(graph, value, names)
    return model


def _lacks_numpy(value: ir.Value) -> bool:
    return value.dtype is not None and (value.dtype == ir.DataType.BFLOAT16 or is_float8(value.dtype))


def _cast_input(graph: ir.Graph, value: ir.Value, names: Names) -> ir.Value:
    """Returns a float32 input, whose cast takes the place of ``value``."""
    new = ir.Value(name=value.name, type=ir.TensorType(ir.DataType.FLOAT), shape=value.shape)
    cast = ir.node("Cast", [new], {"to": value.dtype})
    result = cast.outputs[0]
    result.name, result.type, result.shape = names.unique(f"{value.name}.cast"), value.type, value.shape
    ir.convenience.replace_all_uses_with(value, result)
    graph.insert_before(graph[0], cast)
    return new


def _cast_output(graph: ir.Graph, value: ir.Value, names: Names) -> ir.Value:
    """Returns the float32 cast of an output; the output itself gets another name."""
    cast = ir.node("Cast", [value], {"to": ir.DataType.FLOAT})
    new = cast.outputs[0]
    new.name, new.type, new.shape = value.name, ir.TensorType(ir.DataType.FLOAT), value.shape
    value.name = names.unique(f"{value.name}.before_cast")
    graph.append(cast)
    return new
