"""Runs a model in onnx's reference evaluator, where the installed ONNX Runtime does not load the model's opset."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
import torch

from fx_onnx.files.serialization import drop_initializer_infos
from fx_onnx.onnx_model.weights import Weight, as_torch
from fx_onnx.passes.matchers import attribute, constant_integers

__all__ = ["ReferenceSession", "defect", "reason_not_run"]

_RECURRENT = ("GRU", "LSTM", "RNN")
_SCAN_ATTRIBUTES = ("scan_input_axes", "scan_input_directions", "scan_output_axes", "scan_output_directions")


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


def reason_not_run(node: ir.Node, model: ir.Model) -> str:
    """Returns why the evaluator cannot run a node; empty if it can."""
    if node.domain and node.op_identifier() not in model.functions:
        return f"it has no operators of the domain {node.domain}"
    return defect(node)


def defect(node: ir.Node) -> str:
    """Returns what the evaluator computes wrongly or cannot compute; measured with onnx 1.23.2."""
    inputs = [*node.inputs, *[None] * 5]
    if node.op_type in _RECURRENT and inputs[4] is not None:
        return "the evaluator ignores the lengths of the sequences"
    if node.op_type == "RNN" and set(attribute(node, "activations", ["Tanh"])) != {"Tanh"}:
        return "the evaluator knows no activation other than Tanh"
    if node.op_type == "Scan" and any(any(attribute(node, name, ())) for name in _SCAN_ATTRIBUTES):
        return "the evaluator scans the first axis only, and forwards only"
    if node.op_type == "Pad" and min(constant_integers(inputs[1]) or [0], default=0) < 0:
        return "the evaluator does not cut off elements"
    if node.op_type == "ConvTranspose" and attribute(node, "group", 1) > 1:
        return "the evaluator computes one group only"
    return ""
