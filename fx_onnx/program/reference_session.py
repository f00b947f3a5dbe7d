"""Runs a model in onnx's reference evaluator, where the installed ONNX Runtime does not load the model's opset."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from itertools import chain

import numpy as np
import onnx
import onnx_ir as ir
import torch

from fx_onnx.core.errors import OnnxExporterError
from fx_onnx.core.messages import MessageId
from fx_onnx.core.opsets import ir_version
from fx_onnx.core.weights import Weight, as_torch
from fx_onnx.passes.traversal import all_nodes, graphs_of
from fx_onnx.program.runtime_errors import explain_runtime_errors
from fx_onnx.program.serialization import drop_initializer_infos
from fx_onnx.targets.reference import TARGET

__all__ = ["ReferenceSession", "is_loaded", "refused_opset"]


class ReferenceSession:
    """A model that onnx's reference evaluator runs. It is in Python and NumPy, and slow."""

    def __init__(self, model: ir.Model) -> None:
        from onnx.reference import ReferenceEvaluator

        proto = ir.serde.serialize_model(model)
        drop_initializer_infos(proto.graph)
        self._evaluator = ReferenceEvaluator(proto)

    def run(self, inputs: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Returns all outputs as new CPU tensors.

        Args:
            inputs: input name → a tensor with the dtype and shape of the input.
        """
        results = self._evaluator.run(None, {name: Weight(tensor).numpy() for name, tensor in inputs.items()})
        return tuple(as_torch(ir.Tensor(np.asarray(result))) for result in results)


@functools.cache
def is_loaded(opset: int) -> bool:
    """Returns whether the installed ONNX Runtime loads a model of an opset, which a model of one node tells."""
    import onnxruntime

    header = f'<ir_version: {ir_version(opset)}, opset_import: ["" : {opset}]>'
    proto = onnx.parser.parse_model(f"{header} probe (float[1] x) => (float[1] y) {{ y = Identity(x) }}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    with contextlib.suppress(OnnxExporterError), explain_runtime_errors(ir.serde.deserialize_model(proto)):
        onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return True
    return False


def refused_opset(model: ir.Model) -> str:
    """Returns a sentence if the installed ONNX Runtime does not load the opset of a model; empty if it does.

    Raises:
        OnnxExporterError: it does not, and the reference evaluator computes a node of the model wrongly.
    """
    import onnxruntime

    opset = model.graph.opset_imports.get("")
    if opset is None or is_loaded(opset):
        return ""
    refused = f"ONNX Runtime {onnxruntime.__version__} does not load opset {opset}"
    for node in chain.from_iterable(map(all_nodes, graphs_of(model))):
        if reason := _defect(node, model):
            raise OnnxExporterError(
                f"{refused}, and onnx's reference evaluator cannot run {node.op_type} ({node.name}): {reason}.",
                id=MessageId.RUNTIME,
            )
    return f"{refused}, so onnx's reference evaluator computes the results."


def _defect(node: ir.Node, model: ir.Model) -> str:
    """Returns why the evaluator cannot run a node; empty if it can."""
    if node.domain and node.op_identifier() not in model.functions:
        return f"it has no operators of the domain {node.domain}"
    return TARGET.constraint(node) if TARGET.constraint is not None else ""
