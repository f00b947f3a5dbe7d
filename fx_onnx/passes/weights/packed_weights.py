"""Packing of weights into 4 or 2 bits per element."""

from __future__ import annotations

import onnx_ir as ir
import torch
from onnx_ir import DataType

from fx_onnx.core.dtypes import is_sub_byte
from fx_onnx.core.weights import computed, elementwise
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, constant_array, initializer_tensor
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["PackWeights"]


class PackWeights(Rewrite):
    """Cast(w) from 8 to 4 or 2 bits → a weight of 4 or 2 bits, which is packed when it is saved.

    Legal because saving fails if a value is out of range. torch has no tensors of these dtypes, so the exported module
    holds 8-bit ones. If other nodes read the 8-bit weight, the model holds both.
    """

    name = "pack_weights"
    op_types = ("Cast",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Folds one Cast."""
        source, target, output = node.inputs[0], DataType(attribute(node, "to")), node.outputs[0]
        data = initializer_tensor(source)
        if source is None or data is None or not is_sub_byte(target) or editor.function is not None:
            return False
        if constant_array(source) is not None or data.dtype not in (DataType.INT8, DataType.UINT8):
            return self.declines(node, "it casts a constant of the exporter, or a weight of %s", data.dtype)
        if output.is_graph_output():
            return self.declines(node, "the graph returns its result")
        sizes = data.shape.numpy()
        new = computed(_same, data, dtype=target, shape=sizes, along=elementwise([sizes], len(sizes)))
        return editor.replace_with_value(node, editor.initializer(new, f"{source.name}_packed"))


def _same(weight: torch.Tensor) -> torch.Tensor:
    return weight
