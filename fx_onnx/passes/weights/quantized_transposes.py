"""Hoisting of Transposes over DequantizeLinear and Cast, to where the weight can be stored transposed."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import (
    attribute,
    dims,
    initializer_tensor,
    is_absorbable,
    permutation_of,
    producer_of,
    single_use,
)
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["HoistQuantizedTransposes"]


class HoistQuantizedTransposes(Rewrite):
    """Transpose(DequantizeLinear(w)) → DequantizeLinear(Transpose(w)); Transpose(Cast(w)) → Cast(Transpose(w)).

    Legal because both operators are elementwise; the scales move with their axis. Applies where nothing else reads the
    weight w or the dequantized weight. ``fold_weight_transposes`` then stores w transposed, and runtimes find the
    DequantizeLinear right before the product, which is the form that they fuse.
    """

    name = "hoist_quantized_transposes"
    op_types = ("Transpose",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Moves one Transpose."""
        order = permutation_of(node)
        before = producer_of(node.inputs[0], "DequantizeLinear", "Cast")
        if order is None or before is None or editor.function is not None:
            return False
        source = before.inputs[0]
        if source is None or initializer_tensor(source) is None:
            return False
        if not single_use(source) or not is_absorbable(before.outputs[0]):
            return self.declines(node, "another node reads the weight or the %s", before.op_type)
        inputs = list(before.inputs)
        attributes = dict(before.attributes)
        if before.op_type == "Cast":
            inputs[0] = _transposed(source, order, node, editor)
        else:
            scales = dims(inputs[1])
            if scales is None:
                return self.declines(node, "the shape of the scales is unknown")
            whole = len(scales) == len(order)  # a scale for each block
            moved = inputs if whole else inputs[:1]
            inputs[: len(moved)] = [None if x is None else _transposed(x, order, node, editor) for x in moved]
            if scales:
                axis = attribute(before, "axis", 1) % len(order)
                attributes["axis"] = ir.AttrInt64("axis", order.index(axis))
        editor.replace(node, before.op_type, inputs, attributes, absorbed=[before])
        return True


def _transposed(value: ir.Value, order: Sequence[int], node: ir.Node, editor: Editor) -> ir.Value:
    """Inserts a Transpose of ``value`` before ``node``."""
    sizes = dims(value)
    found = None if sizes is None else [sizes[axis] for axis in order]
    return NodeBuilder(node, editor, value.dtype).Transpose(value, perm=order, sizes=found)
