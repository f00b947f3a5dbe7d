"""The test harness of passes: a model from ONNX text, a pass, the same results in ONNX Runtime, expected operators."""

import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.weights import LazyWeight, Weight, weight
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from tests.compare import assert_close

with_swiglu = pytest.mark.skipif(not onnx.defs.has("SwiGLU"), reason="onnx before 1.23 does not define SwiGLU")


def model(text: str, weights: Mapping[str, torch.Tensor] | None = None, opset: int = 20) -> ir.Model:
    """Parses a graph in ONNX's text format, infers its shapes, and gives each node "%name" as its FX node.

    `weights` become parameters by reference, as in an exported model; initializers in the text become constants.
    """
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}, "local" : 1]>\n{text}')
    given = dict(weights or {})
    proto.graph.initializer.extend(numpy_helper.from_array(_array(tensor), name) for name, tensor in given.items())
    proto = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    result = ir.serde.deserialize_model(proto)
    for value in result.graph.initializers.values():
        if value.name in given:
            value.const_value = weight(given[value.name], value.name)
            value.metadata_props[metadata.INPUT_KIND] = "PARAMETER"
        else:
            value.const_value = ir.Tensor(np.array(value.const_value.numpy()), name=value.name)
    for node in ir.traversal.RecursiveGraphIterator(result.graph):
        node.metadata_props[metadata.FX_NODE] = f"%{node.outputs[0].name}"
    return result


def builder(text: str) -> NodeBuilder:
    """Returns the builder for the first node of a graph."""
    program = model(f"g {text}", opset=9)
    return NodeBuilder(program.graph[0], Editor(program), program.graph[0].outputs[0].dtype)


def _array(tensor: torch.Tensor) -> np.ndarray:
    return Weight(tensor).numpy()


def check(
    before: ir.Model,
    change: Callable[[ir.Model], Any],
    inputs: Sequence[torch.Tensor],
    operators: Sequence[str],
    tolerance: float | None = None,
) -> ir.Model:
    """Runs the model before and after the change, and asserts what a pass must keep.

    The operators are the given ones in any order, and what `check_equal` asserts holds.
    """
    check_equal(before, change, inputs, tolerance)
    nodes = list(ir.traversal.RecursiveGraphIterator(before.graph))
    assert Counter(node.op_type for node in nodes) == Counter(operators), [node.op_type for node in nodes]
    return before


def check_equal(
    before: ir.Model, change: Callable[[ir.Model], Any], inputs: Sequence[torch.Tensor], tolerance: float | None = None
) -> ir.Model:
    """Runs the model before and after the change, and asserts what a pass must keep, whatever operators it chooses.

    The results agree, inputs and outputs keep their names, each node has an FX node, and the model is valid. A computed
    weight is the same if it is computed in pieces.
    """
    want = run(before, inputs)
    names = [value.name for value in (*before.graph.inputs, *before.graph.outputs)]
    change(before)
    onnx.checker.check_model(ir.serde.serialize_model(before), full_check=True)
    nodes = list(ir.traversal.RecursiveGraphIterator(before.graph))
    assert all(node.metadata_props.get(metadata.FX_NODE) for node in nodes), "a node lost its metadata"
    assert [value.name for value in (*before.graph.inputs, *before.graph.outputs)] == names
    assert_close(run(before, inputs), want, tolerance)
    for value in before.graph.initializers.values():
        if isinstance(value.const_value, LazyWeight):
            assert in_pieces(value.const_value) == value.const_value.tobytes(), f"{value.name} differs in pieces"
    return before


def in_pieces(tensor: LazyWeight) -> bytes:
    """Returns the bytes of a weight that is computed and written in pieces of 16 bytes."""
    file = io.BytesIO()
    with mock.patch("fx_onnx.onnx_model.weights.PIECE_BYTES", 16):
        tensor.tofile(file)
    return file.getvalue()


def run(program: ir.Model, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Returns the results of ONNX Runtime with its graph optimizations off; above opset 26, those of onnx.reference.

    ``inputs`` are for all graph inputs, or for those that are no initializers.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    proto = ir.serde.serialize_model(program)
    session: Any
    if program.graph.opset_imports[""] <= 26:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    else:
        session = ReferenceEvaluator(proto)
    values = list(program.graph.inputs)
    if len(inputs) < len(values):
        values = [value for value in values if not value.is_initializer()]
    feed = {value.name: _array(tensor) for value, tensor in zip(values, inputs, strict=True)}
    return tuple(torch.from_numpy(np.asarray(result)) for result in session.run(None, feed))


def origins(program: ir.Model, output: str) -> set[str]:
    """Returns the FX nodes in the metadata of the node that produces a value."""
    for node in ir.traversal.RecursiveGraphIterator(program.graph):
        if output in [value.name for value in node.outputs]:
            return set(node.metadata_props[metadata.FX_NODE].split("\n"))
    raise LookupError(output)
