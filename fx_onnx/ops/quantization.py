"""Quantised values → QuantizeLinear and DequantizeLinear: PT2E's operators and fake quantisation.

torch multiplies by the reciprocal of the scale where ONNX divides by the scale: a value within a rounding error of the
middle between two integers may come out as the other one. Both round the middle itself to the even integer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # registers torch.ops.quantized_decomposed
from onnx_ir import DataType, Value

from fx_onnx import dtypes
from fx_onnx.emitter import Emitter
from fx_onnx.table import translates

aten, quantized = torch.ops.aten, torch.ops.quantized_decomposed

_INT8 = (torch.uint8, torch.int8)
_INT16 = (*_INT8, torch.int16, torch.uint16)
_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


# --- which opset says which dtypes ------------------------------------------------------------------------------------


def _quantizes(*allowed: torch.dtype) -> Callable[..., bool]:
    """Whether ONNX rounds to the dtype as torch does: of float8 torch rounds to integers first."""

    def says(input: Any, scale: Any, zero_point: Any, *rest: Any, dtype: torch.dtype | None = None) -> bool:
        return (dtype or rest[-1]) in allowed and not _is_fraction(zero_point)

    return says


def _dequantizes(*allowed: torch.dtype) -> Callable[..., bool]:
    """Whether ONNX takes the dtype; int32, of which biases are, only without a zero point."""

    def says(input: Any, scale: Any, zero_point: Any, *rest: Any, **named: Any) -> bool:
        if input.dtype == torch.int32 or input.dtype in _FLOAT8:
            none = zero_point is None or (isinstance(zero_point, int) and zero_point == 0)
            return none and (input.dtype == torch.int32 or input.dtype in allowed)
        return input.dtype in allowed and not _is_fraction(zero_point)

    return says


def _fakes(*allowed: torch.dtype) -> Callable[..., bool]:
    """Whether ONNX has a dtype with the range."""

    def says(self: Any, scale: Any, zero_point: Any, *rest: Any, **named: Any) -> bool:
        low, high = (*rest, *named.values())[-2:]
        return self.dtype in _FLOATS and not _is_fraction(zero_point) and _holding(low, high) in set(allowed)

    return says


def _is_fraction(zero_point: Any) -> bool:
    return isinstance(zero_point, torch.Tensor) and zero_point.dtype.is_floating_point


def _holding(low: int, high: int) -> torch.dtype | None:
    """The smallest dtype with these values."""
    return next((d for d in _INT16 if torch.iinfo(d).min <= low and high <= torch.iinfo(d).max), None)


# --- the two operators ------------------------------------------------------------------------------------------------


def _quantized(
    op: Emitter, value: Value, scale: Any, zero_point: Any, low: Any, high: Any, dtype: DataType, axis: int | None
) -> Value:
    """round(value / scale) + zero_point, no less than ``low`` and no more than ``high``."""
    value = op.cast(value, DataType.FLOAT)
    scale = _parameter(op, scale, DataType.FLOAT, axis)
    zero_point = _parameter(op, zero_point, dtype, axis)
    result: Value = op.QuantizeLinear(value, scale, zero_point, axis=axis)
    limits = torch.iinfo(dtypes.torch_dtype(dtype))
    if (low, high) == (limits.min, limits.max):
        return result
    return op.Clip(result, _parameter(op, low, dtype, None), _parameter(op, high, dtype, None))


def _dequantized(
    op: Emitter, value: Value, scale: Any, zero_point: Any, axis: int | None, block: int | None = None
) -> Value:
    """(value - zero_point) * scale as FLOAT; a zero point of zero is left out."""
    scale = _parameter(op, scale, DataType.FLOAT, axis)
    dtype = value.dtype or DataType.INT8
    none = zero_point is None or (isinstance(zero_point, int) and zero_point == 0)
    zero = None if none else _parameter(op, zero_point, dtype, axis)
    result: Value = op.DequantizeLinear(value, scale, zero, axis=axis, block_size=block)
    return result


def _parameter(op: Emitter, parameter: Any, dtype: DataType, axis: int | None) -> Value:
    """A scale, zero point or limit in ``dtype``: one number per tensor, which torch may give as a vector of one."""
    value = op.cast(parameter, dtype)
    return op.reshape(value, []) if axis is None and isinstance(parameter, Value) else value


# --- PT2E -------------------------------------------------------------------------------------------------------------


def quantize_per_tensor(
    op: Emitter, input: Value, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: torch.dtype
) -> Value:
    """clamp(round(input / scale) + zero_point, quant_min, quant_max): QuantizeLinear, and Clip if that is narrower."""
    return _quantized(op, input, scale, zero_point, quant_min, quant_max, op.out_dtype, None)


def quantize_per_channel(
    op: Emitter,
    input: Value,
    scales: Value,
    zero_points: Value,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Value:
    """QuantizeLinear with a scale for each index of the axis."""
    return _quantized(op, input, scales, zero_points, quant_min, quant_max, op.out_dtype, axis)


def dequantize_per_tensor(
    op: Emitter,
    input: Value,
    scale: Any,
    zero_point: Any,
    quant_min: Any,
    quant_max: Any,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Value:
    """(input - zero_point) * scale: DequantizeLinear."""
    return op.cast(_dequantized(op, input, scale, zero_point, None), op.out_dtype)


def dequantize_per_channel(
    op: Emitter,
    input: Value,
    scales: Value,
    zero_points: Value | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Value:
    """DequantizeLinear with a scale for each index of the axis."""
    return op.cast(_dequantized(op, input, scales, zero_points, axis), op.out_dtype)


_QUANTIZE_TENSOR = (
    quantized.quantize_per_tensor.default, quantized.quantize_per_tensor.tensor, quantized.quantize_per_tensor.tensor2,
)  # fmt: skip
_DEQUANTIZE_TENSOR = (
    quantized.dequantize_per_tensor.default, quantized.dequantize_per_tensor.tensor,
    quantized.dequantize_per_tensor.tensor2,
)  # fmt: skip
_BY_OPSET: tuple[tuple[int, tuple[torch.dtype, ...]], ...] = ((18, _INT8), (21, _INT16))
for _since, _dtypes in _BY_OPSET:
    translates(*_QUANTIZE_TENSOR, since=_since, when=_quantizes(*_dtypes))(quantize_per_tensor)
    translates(quantized.quantize_per_channel.default, since=_since, when=_quantizes(*_dtypes))(quantize_per_channel)
_READABLE: tuple[tuple[int, tuple[torch.dtype, ...]], ...] = (
    (18, _INT8),
    (19, (*_INT8, *_FLOAT8)),
    (21, (*_INT16, *_FLOAT8)),
)
for _since, _readable in _READABLE:
    translates(*_DEQUANTIZE_TENSOR, since=_since, when=_dequantizes(*_readable))(dequantize_per_tensor)
    translates(quantized.dequantize_per_channel.default, since=_since, when=_dequantizes(*_readable))(
        dequantize_per_channel
    )


def _whole_groups(
    input: Any, scales: Any, zero_points: Any, quant_min: int, quant_max: int, dtype: torch.dtype, group_size: int,
    output_dtype: torch.dtype,
) -> bool:  # fmt: skip
    """Whether the scales are a matrix of one for each row and group, which is a block of ONNX's."""
    return (
        input.dtype in _INT8
        and scales.dim() == 2
        and (zero_points is None or (zero_points.dim() == 2 and not _is_fraction(zero_points)))
    )


@translates(quantized.dequantize_per_channel_group.default, since=21, when=_whole_groups)
def dequantize_per_channel_group(
    op: Emitter,
    input: Value,
    scales: Value,
    zero_points: Value | None,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    group_size: int,
    output_dtype: torch.dtype,
) -> Value:
    """DequantizeLinear in blocks along the columns."""
    columns = op.sizes(input)[1]
    block = columns if op.sizes(scales)[1] == 1 and isinstance(columns, int) else group_size
    return op.cast(_dequantized(op, input, scales, zero_points, 1, block), op.out_dtype)


# --- fake quantisation ------------------------------------------------------------------------------------------------


def aten_fake_quantize_per_tensor_affine(
    op: Emitter, self: Value, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> Value:
    """Quantised and dequantised again, in the smallest dtype with the range."""
    return _faked(op, self, scale, zero_point, quant_min, quant_max, None)


def aten_fake_quantize_per_channel_affine(
    op: Emitter, self: Value, scale: Value, zero_point: Value, axis: int, quant_min: int, quant_max: int
) -> Value:
    """Quantised and dequantised again, with a scale for each index of the axis."""
    return _faked(op, self, scale, zero_point, quant_min, quant_max, axis)


def quantized_fake_quant_per_channel(
    op: Emitter, input: Value, scales: Value, zero_points: Value, axis: int, quant_min: int, quant_max: int
) -> Value:
    """Quantised and dequantised again, with a scale for each index of the axis."""
    return _faked(op, input, scales, zero_points, quant_min, quant_max, axis)


def _faked(op: Emitter, value: Value, scale: Any, zero_point: Any, low: int, high: int, axis: int | None) -> Value:
    dtype = dtypes.onnx_dtype(_holding(low, high) or torch.int8)
    integers = _quantized(op, value, scale, zero_point, low, high, dtype, axis)
    return op.cast(_dequantized(op, integers, scale, zero_point, axis), op.out_dtype)


_FAKE_TENSOR = (
    aten.fake_quantize_per_tensor_affine.default, aten.fake_quantize_per_tensor_affine.tensor_qparams,
)  # fmt: skip
for _since, _dtypes in _BY_OPSET:
    translates(*_FAKE_TENSOR, since=_since, when=_fakes(*_dtypes))(aten_fake_quantize_per_tensor_affine)
    translates(aten.fake_quantize_per_channel_affine.default, since=_since, when=_fakes(*_dtypes))(
        aten_fake_quantize_per_channel_affine
    )
    translates(quantized.fake_quant_per_channel.default, since=_since, when=_fakes(*_dtypes))(
        quantized_fake_quant_per_channel
    )
