"""Folding of constant indices into weights, as views of one slice each."""

from __future__ import annotations

import onnx_ir as ir
import torch

from fx_onnx.core.weights import computed
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, constant_array, initializer_tensor, is_read
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FoldWeightSelections"]


class FoldWeightSelections(Rewrite):
    """Gather(w, i), i a constant → an initializer that is a view of w[i].

    Legal because no caller can override w. The pass applies where such Gathers are the only consumers of w. Otherwise
    the model would store parts of w twice. An example is a mixture of experts, which keeps all matrices in one weight.
    """

    name = "fold_weight_selections"
    op_types = ("Gather",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Replaces all Gathers of one weight."""
        source = node.inputs[0]
        data = initializer_tensor(source)
        if source is None or data is None or editor.function is not None or _index(node) is None:
            return False
        if constant_array(source) is not None:
            return False  # a small constant of the exporter, which evaluate_constants reads
        readers = [use.node for use in source.uses() if _is_used(use.node)]
        if source.is_graph_output() or any(
            reader.inputs[0] is not source or _index(reader) is None or reader.outputs[0].is_graph_output()
            for reader in readers
        ):
            return self.declines(node, "something other than a Gather with a constant index reads the weight")
        sizes = data.shape.numpy()
        slices: dict[int, ir.Value] = {}
        for reader in readers:
            index = (_index(reader) or 0) % sizes[0]
            if index not in slices:
                part = {0: (index, index + 1)}
                new = computed(_only, data, dtype=data.dtype, shape=sizes[1:], along=_next_axis, reads=part)
                slices[index] = editor.initializer(new, f"{source.name}.{index}")
            editor.replace_with_value(reader, slices[index])
        return True


def _index(node: ir.Node) -> int | None:
    """Returns the index of a Gather along the first axis, if it is one constant number."""
    if node.op_type != "Gather" or node.domain or attribute(node, "axis", 0) != 0:
        return None
    array = constant_array(node.inputs[1])
    return int(array) if array is not None and array.shape == () else None


def _is_used(node: ir.Node) -> bool:
    return any(map(is_read, node.outputs))


def _only(weight: torch.Tensor) -> torch.Tensor:
    return weight[0]


def _next_axis(axis: int) -> list[int | None]:
    return [axis + 1]
