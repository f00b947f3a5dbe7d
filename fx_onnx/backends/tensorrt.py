"""TensorRT through its ONNX parser. Not executed."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.backends.float4_weights import FLOAT4_WEIGHTS
from fx_onnx.backends.legalization.rows import legalizations
from fx_onnx.passes.matchers import initializer_tensor
from fx_onnx.targets.target import Target

__all__ = ["TARGET"]


def _quantization(node: ir.Node) -> str:
    """Returns why TensorRT refuses a QuantizeLinear or DequantizeLinear; empty if it takes it.

    Source: "Working with Quantized Types" in TensorRT's documentation. Quantization is symmetric, activations have one
    scale, and scales are build-time constants.
    """
    if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
        return ""
    x, scale, zero_point = [*node.inputs, None][:3]
    dtype = node.outputs[0].dtype if node.op_type == "QuantizeLinear" else x.dtype if x is not None else None
    if dtype in (DataType.UINT8, DataType.INT16, DataType.UINT16, DataType.UINT4):
        return f"TensorRT has no quantization to {dtype.name.lower()}"
    tensor = initializer_tensor(scale)
    if tensor is None:
        return "the scale is computed, and TensorRT needs a constant"
    shift = None if zero_point is None else zero_point.const_value
    if zero_point is not None and (shift is None or shift.numpy().any()):
        return "the zero point is not 0, and TensorRT quantizes symmetrically"
    if node.op_type == "QuantizeLinear" and tensor.size > 1 and initializer_tensor(x) is None:
        return "an activation has several scales, and TensorRT takes one"
    return ""


TARGET = Target(
    name="tensorrt",
    versions="TensorRT 10",
    opset=18,
    table="tensorrt",
    constraint=_quantization,
    translations=(FLOAT4_WEIGHTS,),
    legalizations=legalizations("tensorrt"),
    without=("slice_hidden_keys",),  # the number of keys would depend on data
    notes=(
        "The table is that of the parser of TensorRT for RTX, the nearest one in a package; TensorRT may differ.",
        "It takes quantized models only if they are symmetric: int8, zero points of 0, one scale for an activation.",
    ),
)
