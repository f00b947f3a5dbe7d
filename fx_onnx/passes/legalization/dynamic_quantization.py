"""QuantizeLinear with a scale that the model computes, as arithmetic, for runtimes that need a constant scale.

OpenVINO (measured with 2026.4.1) reads QuantizeLinear as FakeQuantize, which takes no scale for each row of a dynamic
axis. tract (0.23.9) refuses any scale that is not a constant.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, dims, initializer_tensor
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeDynamicQuantization"]


class LegalizeDynamicQuantization(Rewrite):
    """QuantizeLinear(x, scale, zero_point) → Cast(Clip(Round(x / scale) + zero_point)), where scale is computed.

    Legal because this is ONNX's definition of QuantizeLinear for 8-bit integers; both round half to even. The pass
    belongs to the targets openvino and tract.
    """

    name = "legalize_dynamic_quantization"
    op_types = ("QuantizeLinear",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one QuantizeLinear."""
        x, scale = node.inputs[:2]
        zero_point = node.inputs[2] if len(node.inputs) > 2 else None
        result, sizes = node.outputs[0], dims(x)
        if x is None or scale is None or initializer_tensor(scale) is not None:
            return False
        if result.dtype not in (DataType.INT8, DataType.UINT8) or attribute(node, "block_size", 0):
            return self.declines(node, "the result is %s, or has a scale for each block", result.dtype)
        if sizes is None or x.dtype != scale.dtype:
            return self.declines(node, "the rank is unknown, or the scale is %s", scale.dtype)
        f = NodeBuilder(node, editor, x.dtype)
        later = len(sizes) - 1 - attribute(node, "axis", 1) % max(len(sizes), 1)
        rounded = f.Round(f.Div(x, _aligned(f, scale, later), sizes=sizes), sizes=sizes)
        if zero_point is not None:
            shift = f.Cast(_aligned(f, zero_point, later), to=x.dtype)
            rounded = f.Add(rounded, shift, sizes=sizes)
        limits = np.iinfo(result.dtype.numpy())
        clipped = f.Clip(rounded, float(limits.min), float(limits.max), sizes=sizes)
        editor.replace(node, "Cast", [clipped], {"to": result.dtype})
        return True


def _aligned(f: NodeBuilder, value: Value, later: int) -> Value:
    """Returns one value, or the values for each index of an axis, with one more axis for each later axis of x.

    The rank of the value need not be known: a Reshape takes both forms.
    """
    return value if later == 0 or dims(value) in ((), (1,)) else f.Reshape(value, [-1, *[1] * later])
