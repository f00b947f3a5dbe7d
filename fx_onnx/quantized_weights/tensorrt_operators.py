"""The standard's forms of the operators of TensorRT that Model-Optimizer's quantizers emit in their ``symbolic``.

Each function takes the inputs and the attributes of an operator of the domain ``trt``. It returns None if the operator
has other inputs than those of Model-Optimizer; it stays as it is then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx_ir import DataType, Value

from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model.dtypes import since_opset
from fx_onnx.passes.matchers import producer_of
from fx_onnx.translation.known_sizes import known_sizes
from fx_onnx.translations._quantize_linear import scale_layout

__all__ = ["dequantize_fp8", "fake_quantize_int4", "quantize_fp8"]


def quantize_fp8(op: Any, value: Value, scale: Value) -> Value | None:
    """Emits QuantizeLinear, which saturates as TRT_FP8QuantizeLinear does."""
    _require(DataType.FLOAT8E4M3FN, op.opset)
    result: Value = op.QuantizeLinear(value, scale, op.constant(0.0, DataType.FLOAT8E4M3FN))
    return result


def dequantize_fp8(op: Any, value: Value, scale: Value) -> Value | None:
    """Emits DequantizeLinear of what ``quantize_fp8`` returned."""
    return op.DequantizeLinear(value, scale) if value.dtype == DataType.FLOAT8E4M3FN else None


def fake_quantize_int4(op: Any, value: Value, scale: Value, **_: Any) -> Value | None:
    """Emits QuantizeLinear and DequantizeLinear of INT4.

    Model-Optimizer gives its DequantizeLinear a float weight in rows of one block each, which its own tools round after
    the export. So the sizes of the scales tell their layout, not the attributes.
    """
    _require(DataType.INT4, op.opset)
    sizes, scales = known_sizes(value), _sizes_of_constant(scale)
    if sizes is None or scales is None or len(scales) != len(sizes):
        return None
    layout = scale_layout(sizes, [size // count for size, count in zip(sizes, scales, strict=True)])
    if layout is None:
        return None
    scale = op.reshape(op.cast(scale, DataType.FLOAT), layout.sizes(sizes))
    form = {"axis": layout.axis, "block_size": layout.block}
    numbers = op.QuantizeLinear(op.cast(value, DataType.FLOAT), scale, output_dtype=DataType.INT4, **form)
    result: Value = op.cast(op.DequantizeLinear(numbers, scale, **form), value.dtype)
    return result


def _require(dtype: DataType, opset: int) -> None:
    if opset < (first := since_opset(dtype)):
        raise ArgumentError(
            f"{dtype.name} needs opset {first} or above, not {opset}; export with opset_version={first}.",
            id=MessageId.OPSET_VERSION,
        )


def _sizes_of_constant(value: Value) -> Sequence[int] | None:
    node = producer_of(value, "Constant")
    tensor = value.const_value if node is None else node.attributes["value"].as_tensor()
    return None if tensor is None else tensor.shape.numpy()
