"""Views of a model: other initializers and nodes, without a copy of the graph and without a change of the model."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

__all__ = ["twin_of", "view_of"]


def twin_of(value: ir.Value) -> ir.Value:
    """Returns a value with the same name, type, tensor and metadata, which belongs to no graph."""
    found = ir.Value(name=value.name, shape=value.shape, type=value.type, const_value=value.const_value)
    found.doc_string = value.doc_string
    found.metadata_props.update(value.metadata_props)
    found.meta.update(value.meta)
    return found


def view_of(model: ir.Model, initializers: Sequence[ir.Value], nodes: Sequence[ir.Node]) -> ir.Model:
    """Returns a model with other initializers and nodes; all else is that of ``model``."""
    graph = ir.GraphView(
        model.graph.inputs,
        model.graph.outputs,
        nodes=nodes,
        initializers=initializers,
        doc_string=model.graph.doc_string,
        opset_imports=model.graph.opset_imports,
        name=model.graph.name,
        metadata_props=model.graph.metadata_props,
    )
    found = ir.Model(
        graph,  # type: ignore[arg-type]  # onnx_ir documents that it may be a view
        ir_version=model.ir_version,
        producer_name=model.producer_name,
        producer_version=model.producer_version,
        domain=model.domain,
        model_version=model.model_version,
        doc_string=model.doc_string,
        functions=list(model.functions.values()),
        metadata_props=model.metadata_props,
        device_configurations=model.device_configurations,
    )
    found.meta.update(model.meta)
    return found
