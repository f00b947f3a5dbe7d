"""Runs a model in onnx's reference evaluator, where the installed ONNX Runtime does not load the model's opset."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
import torch

from fx_onnx.backends.reference import TARGET
from fx_onnx.files.serialization import drop_initializer_infos
from fx_onnx.onnx_model.weights import Weight, as_torch

__all__ = ["ReferenceSession", "reason_not_run"]


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
    return TARGET.constraint(node) if TARGET.constraint is not None else ""
