"""Legalization of QuantizeLinear and DequantizeLinear for runtimes without them, or with constant scales only."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import attribute, constant_array, dims, initializer_tensor, producer_of
from fx_onnx.passes.rules import Result, rule

__all__ = ["legalize_dequantization", "legalize_dynamic_quantization", "legalize_quantization"]


@rule("QuantizeLinear(_, _, _ | None)")
def legalize_quantization(f: NodeBuilder, node: ir.Node) -> Result:
    """QuantizeLinear(x, scale, zero_point) → Cast(Clip(Round(x / scale) + zero_point)).

    Legal because this is ONNX's definition of QuantizeLinear for 8-bit integers; both round half to even. MNN (3.6.1)
    computes any QuantizeLinear wrongly.
    """
    return _reason_against(node) or f.Cast(_quantized(f, node), to=node.outputs[0].dtype)


@rule("QuantizeLinear(_, scale, _ | None)", where={"scale": lambda scale: initializer_tensor(scale) is None})
def legalize_dynamic_quantization(f: NodeBuilder, node: ir.Node) -> Result:
    """QuantizeLinear(x, scale, zero_point) → Cast(Clip(Round(x / scale) + zero_point)), where scale is computed.

    Legal because this is ONNX's definition of QuantizeLinear for 8-bit integers; both round half to even. OpenVINO
    (measured with 2026.4.1) reads QuantizeLinear as FakeQuantize, which takes no scale for each row of a dynamic axis.
    tract (0.23.9) refuses any scale that is not a constant.
    """
    return legalize_quantization.function(f, node)


@rule("DequantizeLinear(q, scale, zero_point | None, axis=axis, block_size=block)")
def legalize_dequantization(
    f: NodeBuilder, node: ir.Node, q: Value, scale: Value, zero_point: Value | None, axis: int, block: int
) -> Result:
    """DequantizeLinear(q, scale, zero_point) → (Cast(q) - zero_point) * scale; q of a QuantizeLinear stays a float.

    Legal because this is ONNX's definition of both operators for integers. MNN (3.6.1) computes a DequantizeLinear of a
    weight wrongly.
    """
    sizes, quantize = dims(q), producer_of(q, "QuantizeLinear")
    if sizes is None or scale.dtype != f.dtype or block:
        return "the rank is unknown, or there is a scale for each block"
    is_pair = quantize is not None and not _reason_against(quantize)
    number = _quantized(f, quantize) if quantize is not None and is_pair else f.Cast(q, to=f.dtype)
    later = len(sizes) - 1 - axis % max(len(sizes), 1)
    if zero_point is not None:
        number = f.Sub(number, _shift(f, zero_point, scale, later))
    return f.Mul(number, _aligned(f, scale, later))


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
    rounded = f.Round(f.Div(x, _aligned(f, scale, later)))
    if zero_point is not None:
        rounded = f.Add(rounded, _shift(f, zero_point, scale, later))
    limits = np.iinfo(np.uint8 if quantize.outputs[0].dtype == DataType.UINT8 else np.int8)
    return f.Clip(rounded, float(limits.min), float(limits.max))


def _shift(f: NodeBuilder, zero_point: Value, scale: Value, later: int) -> Value:
    """Returns a zero point as floats of the scale's dtype.

    A constant is converted here: where two equal nodes read a Cast of the same constant, MNN loses a Relu that follows
    one of them.
    """
    array, dtype = constant_array(zero_point), scale.dtype or DataType.FLOAT
    if array is None:
        return f.Cast(_aligned(f, zero_point, later), to=dtype)
    return _aligned(f, f.constant(array.astype(dtype.numpy())), later)


def _aligned(f: NodeBuilder, value: Value, later: int) -> Value:
    """Returns one value, or the values for each index of an axis, with one more axis for each later axis of x.

    The rank of the value need not be known: a Reshape takes both forms.
    """
    return value if later == 0 or dims(value) in ((), (1,)) else f.Reshape(value, [-1, *[1] * later])
