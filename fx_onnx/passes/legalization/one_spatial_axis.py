"""Convolutions along one axis as those of an image of one row, for a runtime that is wrong for one axis.

MNN (measured with 3.6.1, on a CPU) has no result of a grouped convolution along one axis with a computed weight, such
as one with weight norm. An output of the graph that is the result of a convolution along one axis, or its Relu, has one
axis too many. Convolutions along two axes are right.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import dims
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeOneSpatialAxis"]

_FIRST = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_padding": 0, "output_shape": 1}
"""The value of each attribute for the axis that is added."""


class LegalizeOneSpatialAxis(Rewrite):
    """Conv(x, w) of one axis → Squeeze(Conv(Unsqueeze(x), Unsqueeze(w))); ConvTranspose too.

    Legal because a kernel of size 1 along an axis of size 1 changes nothing. The pass belongs to the target mnn.
    """

    name = "legalize_one_spatial_axis"
    op_types = ("Conv", "ConvTranspose")

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one convolution along one axis."""
        x, result = node.inputs[0], node.outputs[0]
        sizes = dims(x)
        if x is None or sizes is None or len(sizes) != 3:
            return False
        f, axis = NodeBuilder(node, editor, x.dtype), [2]
        image = f.Unsqueeze(x, f.constant(axis), sizes=_with_row(sizes))
        weight = f.Unsqueeze(node.inputs[1], f.constant(axis), sizes=_with_row(dims(node.inputs[1])))
        given = {name: each.value for name, each in node.attributes.items()}
        operands = [image, weight, *node.inputs[2:]]
        convolved = f.emit(node.op_type, operands, _of_an_image(given), sizes=_with_row(dims(result)))[0]
        editor.replace(node, "Squeeze", [convolved, f.constant(axis)], {})
        return True


def _of_an_image(attributes: dict[str, Any]) -> dict[str, Any]:
    """Returns the attributes with a value for the added axis, which is the first spatial one."""
    found = {name: [_FIRST[name], *value] if name in _FIRST else value for name, value in attributes.items()}
    if "pads" in found:
        before, after = found["pads"]
        found["pads"] = [0, before, 0, after]
    return found


def _with_row(sizes: tuple[int | str, ...] | None) -> tuple[int | str, ...] | None:
    return None if sizes is None else (*sizes[:2], 1, *sizes[2:])
