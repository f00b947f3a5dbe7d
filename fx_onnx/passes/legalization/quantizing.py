"""Legalization of QuantizeLinear and DequantizeLinear for older opsets, and for runtimes that lack a part of them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import rank_of, round_half_to_even
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import attribute, constant_array, dims, initializer_tensor, producer_of
from fx_onnx.passes.rules import Result

__all__ = ["legalize_dequantization", "legalize_dynamic_quantization", "legalize_quantization"]


@legalizes("QuantizeLinear(_, _, _ | None)", targets=("mnn",))
@legalizes("QuantizeLinear(_, _, _ | None)", until=9)
def legalize_quantization(f: NodeBuilder, node: ir.Node) -> Result:
    """QuantizeLinear(x, scale, zero_point) → Cast(Clip(Round(x / scale) + zero_point)).

    Legal because this is ONNX's definition of QuantizeLinear for 8-bit integers; both round half to even. MNN (3.6.1)
    computes any QuantizeLinear wrongly.
    """
    return _reason_against(node) or f.Cast(_quantized(f, node), to=node.outputs[0].dtype)


@legalizes(
    "QuantizeLinear(_, scale, _ | None)",
    targets=("openvino", "tract"),
    where={"scale": lambda scale: initializer_tensor(scale) is None},
)
def legalize_dynamic_quantization(f: NodeBuilder, node: ir.Node) -> Result:
    """QuantizeLinear(x, scale, zero_point) → Cast(Clip(Round(x / scale) + zero_point)), where scale is computed.

    Legal because this is ONNX's definition of QuantizeLinear for 8-bit integers; both round half to even. OpenVINO
    (measured with 2026.4.1) reads QuantizeLinear as FakeQuantize, which takes no scale for each row of a dynamic axis.
    tract (0.23.9) refuses any scale that is not a constant.
    """
    return legalize_quantization.function(f, node)


@legalizes("QuantizeLinear(x, scale, zero_point | None)", "DequantizeLinear(x, scale, zero_point | None)", until=12)
def quantize_along_axis(f: NodeBuilder, node: ir.Node, x: Value, scale: Value, zero_point: Value | None) -> Result:
    """QuantizeLinear<axis>(x, s, z) → Cast(Clip(Round(x / s) + z)), DequantizeLinear<axis>(x, s, z) → (x - z) * s.

    Legal because these are the definitions. With a scale for the whole tensor the operator stays, as opset 12 has it.
    """
    rank = None if scale.shape is None else len(scale.shape)
    if rank == 0:
        kept = {name: each for name, each in node.attributes.items() if name != "axis"}
        return f.emit(node.op_type, node.inputs, kept)[0]
    if rank != 1:
        return "its scale is not a scalar or a vector"
    if node.op_type == "QuantizeLinear":
        return legalize_quantization.function(f, node)
    return _dequantized(f, f.Cast(x, to=f.dtype), node, scale, zero_point)


@legalizes("DequantizeLinear(q, scale, zero_point | None)", until=9)
def dequantize_tensor(f: NodeBuilder, node: ir.Node, q: Value, scale: Value, zero_point: Value | None) -> Result:
    """DequantizeLinear(x, s, z) → (x - z) * s.

    Legal because this is the definition.
    """
    return _dequantized(f, f.Cast(q, to=f.dtype), node, scale, zero_point)


@legalizes("DequantizeLinear(q, scale, zero_point | None, block_size=block)", targets=("mnn",))
def legalize_dequantization(
    f: NodeBuilder, node: ir.Node, q: Value, scale: Value, zero_point: Value | None, block: int
) -> Result:
    """DequantizeLinear(q, scale, zero_point) → (Cast(q) - zero_point) * scale; q of a QuantizeLinear stays a float.

    Legal because this is ONNX's definition of both operators for integers. MNN (3.6.1) computes a DequantizeLinear of a
    weight wrongly.
    """
    quantize = producer_of(q, "QuantizeLinear")
    if dims(q) is None or scale.dtype != f.dtype or block:
        return "the rank is unknown, or there is a scale for each block"
    is_pair = quantize is not None and not _reason_against(quantize)
    number = _quantized(f, quantize) if quantize is not None and is_pair else f.Cast(q, to=f.dtype)
    return _dequantized(f, number, node, scale, zero_point)


def _dequantized(f: NodeBuilder, number: Value, node: ir.Node, scale: Value, zero_point: Value | None) -> Value:
    """Returns (number - zero_point) * scale."""
    if zero_point is not None:
        number = f.Sub(number, _shift(f, node, zero_point, scale))
    return f.Mul(number, _aligned(f, node, scale))


def _reason_against(quantize: ir.Node) -> str:
    """Returns why a QuantizeLinear has no form as arithmetic; empty if it has one."""
    x, scale = quantize.inputs[:2]
    if quantize.outputs[0].dtype not in (DataType.INT8, DataType.UINT8) or attribute(quantize, "block_size", 0):
        return "the result has not 8 bits, or there is a scale for each block"
    if x is None or scale is None or x.shape is None or x.dtype != scale.dtype:
        return "the rank is unknown, or the scale has another dtype"
    return ""


def _quantized(f: NodeBuilder, quantize: ir.Node) -> Value:
    """Returns the result of a QuantizeLinear as a float: Clip(Round(x / scale) + zero_point)."""
    x, scale = (each for each in quantize.inputs[:2] if each is not None)
    quotient, zero_point = f.Div(x, _aligned(f, quantize, scale)), [*quantize.inputs, None][2]
    rounded = f.Round(quotient) if f.editor.opset > 10 else round_half_to_even(f, quotient)
    if zero_point is not None:
        rounded = f.Add(rounded, _shift(f, quantize, zero_point, scale))
    limits = np.iinfo(np.uint8 if quantize.outputs[0].dtype == DataType.UINT8 else np.int8)
    return f.Clip(rounded, float(limits.min), float(limits.max))


def _shift(f: NodeBuilder, node: ir.Node, zero_point: Value, scale: Value) -> Value:
    """Returns a zero point as floats of the scale's dtype.

    A constant is converted here: where two equal nodes read a Cast of the same constant, MNN loses a Relu that follows
    one of them.
    """
    array, dtype = constant_array(zero_point), scale.dtype or DataType.FLOAT
    if array is None:
        return f.Cast(_aligned(f, node, zero_point), to=dtype)
    return _aligned(f, node, f.constant(array.astype(dtype.numpy())))


def _aligned(f: NodeBuilder, node: ir.Node, value: Value) -> Value:
    """Returns one value, or the values for each index of an axis, with one more axis for each later axis of x.

    The rank of the value need not be known: a Reshape takes both forms.
    """
    rank = 0 if dims(value) in ((), (1,)) else rank_of(node.inputs[0])
    later = rank - 1 - attribute(node, "axis", 1) % rank if rank else 0
    return f.Reshape(value, [-1, *[1] * later]) if later else value
