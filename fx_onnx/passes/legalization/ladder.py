"""The ladder of opsets: the steps in order, and the stage that runs them."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass, RemoveUnusedOpsetsPass, ShapeInferencePass

from fx_onnx.core.opsets import (
    MINIMUM_NATIVE_OPSET,
    OLDEST_OPSET,
    OLDEST_OPSET_WITH_FUNCTIONS,
    OLDEST_OPSET_WITHOUT_INITIALIZER_INPUTS,
    ir_version,
)
from fx_onnx.core.schemas import has_meaning
from fx_onnx.core.shape_inference import infer_shapes
from fx_onnx.passes.legalization.step import OpsetStep
from fx_onnx.passes.matchers import dims
from fx_onnx.passes.traversal import all_nodes, all_values

__all__ = ["LADDER", "convert_opset"]

LADDER = tuple(OpsetStep(opset) for opset in range(MINIMUM_NATIVE_OPSET - 1, OLDEST_OPSET - 1, -1))
"""All steps, each from the opset above to its own."""


def convert_opset(model: ir.Model, version: int) -> ir.Model:
    """Converts the model in place to an older opset, one step after the other.

    A function stays if its body is the same in the older opset. Others are inlined, because the values in their bodies
    have no shapes, which many rewrites need. If the model is in this opset already, or in an older one, it stays as it
    is. Below opset 9, the initializers become inputs too.

    Raises:
        OnnxExporterError: an opset on the way cannot express some node. The message names the operator, its source line
            and the oldest opset that works.
    """
    steps = [step for step in LADDER if version <= step.opset < model.graph.opset_imports[""]]
    if not steps:
        return model
    if model.functions:
        InlinePass(lambda function: not _is_of_opset(function, version))(model)
        RemoveUnusedOpsetsPass()(model)
        for function in model.functions.values():
            function.opset_imports[""] = version
    without_shape = set[ir.Value]()
    for place, step in enumerate(steps):
        # Rewrites need ranks and sizes. Below opset 11, they also need those of the nodes that earlier steps inserted.
        if not place or step.opset < 11:
            model = _with_shapes(model, without_shape)
        step(model)
    steps[-1].check(model)
    model.ir_version = ir_version(version)
    if version < OLDEST_OPSET_WITHOUT_INITIALIZER_INPUTS:
        _initializers_as_inputs(model)
    return model


def _is_of_opset(function: ir.Function, version: int) -> bool:
    """Returns whether the body of a function is valid, and means the same, in an opset below its own."""
    nodes = [node for node in ir.traversal.RecursiveGraphIterator(function.graph) if not node.domain]
    return version >= OLDEST_OPSET_WITH_FUNCTIONS and all(
        has_meaning(node, function.opset_imports[""], version) for node in nodes
    )


def _with_shapes(model: ir.Model, without: set[ir.Value]) -> ir.Model:
    """Infers the shapes of the values that have none, each from its node and, if that is not enough, all together.

    Values for which that did not find all sizes are added to ``without``, and are no reason to infer all again.

    Only the inference of the whole model follows the elements of computed shapes. The names that it gives to sizes are
    unique within one inference only: two inferences could give one name to two different sizes, so these stay unknown.
    """
    for node in all_nodes(model.graph):
        if any(_is_unknown(value) and value not in without for value in node.outputs):
            for value, shape in zip(node.outputs, infer_shapes(node, model.graph.opset_imports[""]), strict=True):
                value.shape = shape if value.shape is None else value.shape
    if without.issuperset(value for value in all_values(model.graph) if _is_unknown(value)):
        return model
    model = ShapeInferencePass(strict_mode=False)(model).model
    for value in all_values(model.graph):
        sizes = list(value.shape or ())
        known = [size if isinstance(size, int) or not str(size.value).startswith("unk__") else None for size in sizes]
        if known != sizes:
            value.shape = ir.Shape(known)
    without.update(value for value in all_values(model.graph) if _is_unknown(value))
    return model


def _is_unknown(value: ir.Value) -> bool:
    return dims(value) is None


def _initializers_as_inputs(model: ir.Model) -> None:
    """Makes all initializers inputs of the main graph, as IR version 3 requires. They keep their values."""
    for graph in model.graphs():
        for name, value in list(graph.initializers.items()):
            if graph is not model.graph:  # a subgraph has no inputs for them
                del graph.initializers[name]
                model.graph.register_initializer(value)
            if not value.is_graph_input():
                model.graph.inputs.append(value)
