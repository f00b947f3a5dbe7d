"""QuantizeLinear and DequantizeLinear as arithmetic, for runtimes without them or with constant scales only.

OpenVINO (measured with 2026.4.1) reads QuantizeLinear as FakeQuantize, which takes no scale for each row of a dynamic
axis. tract (0.23.9) refuses any scale that is not a constant. MNN (3.6.1) computes a DequantizeLinear of a weight
wrongly, and any QuantizeLinear.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, constant_array, dims, initializer_tensor, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeDequantization", "LegalizeDynamicQuantization", "LegalizeQuantization"]


class LegalizeQuantization(Rewrite):
    """QuantizeLinear(x, scale, zero_point) → Cast(Clip(Round(x / scale) + zero_point)).

    Legal because this is ONNX's definition of QuantizeLinear for 8-bit integers; both round half to even. The pass
    belongs to the target mnn.
    """

    name = "legalize_quantization"
    op_types = ("QuantizeLinear",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one QuantizeLinear."""
        reason = _reason_against(node)
        if reason:
            return self.declines(node, reason)
        f = NodeBuilder(node, editor, node.inputs[1].dtype if node.inputs[1] else None)
        editor.replace(node, "Cast", [_quantized(f, node)], {"to": node.outputs[0].dtype})
        return True


class LegalizeDynamicQuantization(LegalizeQuantization):
    """QuantizeLinear(x, scale, zero_point) → Cast(Clip(Round(x / scale) + zero_point)), where scale is computed.

    Legal because this is ONNX's definition of QuantizeLinear for 8-bit integers; both round half to even. The pass
    belongs to the targets openvino and tract.
    """

    name = "legalize_dynamic_quantization"

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one QuantizeLinear with a computed scale."""
        return initializer_tensor(node.inputs[1]) is None and super().rewrite(node, editor)


class LegalizeDequantization(Rewrite):
    """DequantizeLinear(q, scale, zero_point) → (Cast(q) - zero_point) * scale; q of a QuantizeLinear stays a float.

    Legal because this is ONNX's definition of both operators for integers. The pass belongs to the target mnn.
    """

    name = "legalize_dequantization"
    op_types = ("DequantizeLinear",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one DequantizeLinear, and the QuantizeLinear that it reads."""
        q, scale, *rest = node.inputs
        result = node.outputs[0]
        sizes = dims(q)
        if (
            q is None
            or scale is None
            or sizes is None
            or scale.dtype != result.dtype
            or attribute(node, "block_size", 0)
        ):
            return self.declines(node, "the rank is unknown, or there is a scale for each block")
        f, quantize = NodeBuilder(node, editor, scale.dtype), producer_of(q, "QuantizeLinear")
        is_pair = quantize is not None and not _reason_against(quantize)
        number = _quantized(f, quantize) if quantize is not None and is_pair else f.Cast(q, to=scale.dtype, sizes=sizes)
        later = len(sizes) - 1 - attribute(node, "axis", 1) % max(len(sizes), 1)
        if rest and rest[0] is not None:
            number = f.Sub(number, _shift(f, rest[0], later), sizes=sizes)
        editor.replace(node, "Mul", [number, _aligned(f, scale, later)], {})
        return True


def _reason_against(quantize: ir.Node) -> str:
    """Returns why a QuantizeLinear has no form as arithmetic; empty if it has one."""
    x, scale = quantize.inputs[:2]
    if quantize.outputs[0].dtype not in (DataType.INT8, DataType.UINT8) or attribute(quantize, "block_size", 0):
        return "the result has not 8 bits, or there is a scale for each block"
    if x is None or scale is None or dims(x) is None or x.dtype != scale.dtype:
        return "the rank is unknown, or the scale has another dtype"
    return ""


def _quantized(f: NodeBuilder, quantize: ir.Node) -> Value:
    """Returns the result of a QuantizeLinear as a float: Clip(Round(x / scale) + zero_point)."""
    x, scale = (each for each in quantize.inputs[:2] if each is not None)
    zero_point, sizes = [*quantize.inputs, None][2], dims(x) or ()
    later = len(sizes) - 1 - attribute(quantize, "axis", 1) % max(len(sizes), 1)
    rounded = f.Round(f.Div(x, _aligned(f, scale, later), sizes=sizes), sizes=sizes)
    if zero_point is not None:
        rounded = f.Add(rounded, _shift(f, zero_point, later), sizes=sizes)
    limits = np.iinfo(np.uint8 if quantize.outputs[0].dtype == DataType.UINT8 else np.int8)
    return f.Clip(rounded, float(limits.min), float(limits.max), sizes=sizes)


def _shift(f: NodeBuilder, zero_point: Value, later: int) -> Value:
    """Returns a zero point as floats of the builder's dtype.

    A constant is converted here: where two equal nodes read a Cast of the same constant, MNN loses a Relu that follows
    one of them.
    """
    array = constant_array(zero_point)
    if array is None:
        return f.Cast(_aligned(f, zero_point, later), to=f.dtype)
    return _aligned(f, f.constant(array.astype(f.dtype.numpy())), later)


def _aligned(f: NodeBuilder, value: Value, later: int) -> Value:
    """Returns one value, or the values for each index of an axis, with one more axis for each later axis of x.

    The rank of the value need not be known: a Reshape takes both forms.
    """
    return value if later == 0 or dims(value) in ((), (1,)) else f.Reshape(value, [-1, *[1] * later])
