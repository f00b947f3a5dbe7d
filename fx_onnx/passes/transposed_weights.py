"""Transposes of weights, done when the weight is read."""

from __future__ import annotations

import functools

import onnx_ir as ir
import torch

from fx_onnx.passes.rewrite import Editor, Rewrite, attribute, weight_of
from fx_onnx.weights import computed

__all__ = ["TransposeWeights"]


class TransposeWeights(Rewrite):
    """Transpose(w) → an initializer that is a transposed view of w.

    Legal where w is an initializer that only Transposes of the same order read, so that w itself goes and no tied
    weight is stored twice.
    """

    name = "transpose_weights"
    op_types = ("Transpose",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Replaces one Transpose of a weight, and its twins."""
        source = node.inputs[0]
        data = weight_of(source)
        if source is None or data is None or editor.function is not None or source.is_graph_output():
            return False
        rank = len(data.shape)
        order = attribute(node, "perm", range(rank - 1, -1, -1))
        twins = [use.node for use in source.uses()]
        for twin in twins:
            if twin.op_type != "Transpose" or twin.domain or twin.outputs[0].is_graph_output():
                return False
            if tuple(attribute(twin, "perm", range(rank - 1, -1, -1))) != tuple(order):
                return False
        sizes = data.shape.numpy()
        view = functools.partial(_permuted, tuple(order))
        new = computed(view, data, dtype=data.dtype, shape=[sizes[axis] for axis in order])
        value = editor.weight(new, f"{source.name}_transposed")
        for twin in twins:
            editor.forward(twin, value)
        return True


def _permuted(order: tuple[int, ...], weight: torch.Tensor) -> torch.Tensor:
    return weight.permute(order)
