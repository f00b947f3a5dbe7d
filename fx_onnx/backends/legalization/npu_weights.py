"""Quantized weights for Qualcomm's NPUs: scales by channel and by block, and weights of 4 bits."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.backends.legalization.products import dequantize_tensor
from fx_onnx.backends.legalization.static_shapes import static_sizes
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import attribute, dims, has_dtype, initializer_tensor, is_read_by, producer_of, single_use
from fx_onnx.passes.rules import Result

__all__ = ["legalize_dequantization_by_channel", "legalize_ranks_of_block_products", "legalize_zero_points"]

_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


@legalizes("DequantizeLinear(q, scale)", targets=("qnn",), where={"q": has_dtype(DataType.INT4)})
def legalize_zero_points(f: NodeBuilder, node: ir.Node, q: Value, scale: Value) -> Result:
    """DequantizeLinear(q, scale) → DequantizeLinear(q, scale, 0), for numbers of 4 bits with a sign.

    Legal because 0 is the default. Without the input, QNN (2.7) reads negative numbers as positive ones.
    """
    sizes = static_sizes(f, scale)
    if sizes is None:
        return "the number of scales is not known"
    zeros = f.constant(np.zeros(sizes, DataType.INT4.numpy()))
    return f.emit("DequantizeLinear", [q, scale, zeros], node.attributes)[0]


@legalizes("DequantizeLinear(q, scale, zero_point | None, block_size=block)", targets=("qnn",))
def legalize_dequantization_by_channel(
    f: NodeBuilder, node: ir.Node, q: Value, scale: Value, zero_point: Value | None, block: int
) -> Result:
    """DequantizeLinear(q, scale, zero_point) → (Cast(q) - zero_point) * scale, if there are several scales.

    Legal because this is ONNX's definition. QNN (2.7) takes several scales only for the weight of a layer from
    quantized to quantized numbers, which stays, and no scale that is computed.
    """
    is_kept = dims(scale) in ((), (1,)) or all(_takes_weight(use.node, q, block) for use in node.outputs[0].uses())
    if initializer_tensor(scale) is not None and is_kept:
        return None
    return (_by_block if block else dequantize_tensor.function)(f, node, q, scale, zero_point)


def _takes_weight(node: ir.Node, weight: Value, block: int) -> bool:
    """Returns whether a node is a layer from DequantizeLinear to QuantizeLinear that takes a weight of several scales.

    A Relu or Clip may be between the layer and the QuantizeLinear.
    """
    if node.op_type not in _LAYERS or (weight.dtype == DataType.UINT4 and not block):
        return False
    if node.op_type == "ConvTranspose" and (block or weight.dtype == DataType.INT4):
        return False
    result = node.outputs[0]
    if is_read_by(result, "Relu", "Clip") and single_use(result):
        result = next(iter(result.uses())).node.outputs[0]
    is_between = producer_of(node.inputs[0], "DequantizeLinear") and is_read_by(result, "QuantizeLinear")
    return bool(is_between) and single_use(result)


def _by_block(f: NodeBuilder, node: ir.Node, q: Value, scale: Value, zero_point: Value | None) -> Value | str:
    """Returns (q - zero_point) * scale, computed with one more axis behind that of the blocks."""
    sizes, block = static_sizes(f, q), attribute(node, "block_size", 0)
    axis = attribute(node, "axis", 1) % len(sizes or (1,))
    if sizes is None or sizes[axis] % block:
        return "the last block is shorter than the others"
    number = f.Reshape(f.Cast(q, to=f.dtype), [*sizes[:axis], sizes[axis] // block, block, *sizes[axis + 1 :]])
    if zero_point is not None:
        number = f.Sub(number, f.Unsqueeze(f.Cast(zero_point, to=f.dtype), [axis + 1]))
    return f.Reshape(f.Mul(number, f.Unsqueeze(scale, [axis + 1])), [*sizes])


@legalizes("com.microsoft.MatMulNBits(x, *weight)", targets=("qnn",))
def legalize_ranks_of_block_products(f: NodeBuilder, node: ir.Node, x: Value, weight: list[Value]) -> Result:
    """MatMulNBits(x, weight) → Reshape(MatMulNBits(Reshape(x), weight)), unless x has 3 axes.

    Legal because each row of x is multiplied alone. QNN (2.7) takes 3 axes only.
    """
    sizes = static_sizes(f, x)
    if sizes is None or len(sizes) == 3:
        return None
    rows = f.Reshape(x, [1, math.prod(sizes[:-1]), sizes[-1]])
    product = f.emit("MatMulNBits", [rows, *weight], node.attributes, domain="com.microsoft")[0]
    return f.Reshape(product, [*sizes[:-1], f.attribute("N")])
