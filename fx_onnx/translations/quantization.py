"""Quantized values: QuantizeLinear and DequantizeLinear for PT2E's operators and fake quantization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from onnx_ir import Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.onnx_model import dtypes
from fx_onnx.torch_internals.operators import aten, quantized_decomposed
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translations._quantize_linear import (
    INT8,
    INT16,
    ScaleLayout,
    dequantized,
    is_fractional,
    packed_weight,
    quantized,
    smallest_dtype,
)

_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


# ---------------------------------------------------------------- the dtypes of each opset


def _can_quantize_to(*allowed: torch.dtype) -> Callable[..., bool]:
    """Returns a predicate that accepts ``allowed`` as quantized dtypes.

    float8 is never among them, because torch rounds to integers before it rounds to float8.
    """

    def is_supported(dtype: torch.dtype, zero_point: Any = None, zero_points: Any = None) -> bool:
        return dtype in allowed and not is_fractional(zero_point) and not is_fractional(zero_points)

    return is_supported


def _can_dequantize_from(*allowed: torch.dtype) -> Callable[..., bool]:
    """Returns a predicate that accepts ``allowed`` as quantized dtypes, and int32, which biases have.

    int32 and float8 are accepted without a zero point only.
    """

    def is_supported(input: Any, zero_point: Any = None, zero_points: Any = None) -> bool:
        zero_point = zero_points if zero_point is None else zero_point
        if input.dtype == torch.int32 or input.dtype in _FLOAT8:
            no_zero_point = zero_point is None or (isinstance(zero_point, int) and zero_point == 0)
            return no_zero_point and (input.dtype == torch.int32 or input.dtype in allowed)
        return input.dtype in allowed and not is_fractional(zero_point)

    return is_supported


def _has_range_of(*allowed: torch.dtype) -> Callable[..., bool]:
    """Returns a predicate that accepts a range if the smallest dtype that holds it is one of ``allowed``."""

    def is_supported(
        quant_min: int, quant_max: int, self: Any = None, input: Any = None, zero_point: Any = None,
        zero_points: Any = None,
    ) -> bool:  # fmt: skip
        if is_fractional(zero_point) or is_fractional(zero_points):
            return False
        dtype = (input if self is None else self).dtype
        return dtype in _FLOATS and smallest_dtype(quant_min, quant_max) in set(allowed)

    return is_supported


# ---------------------------------------------------------------- PT2E


def quantize_per_tensor(
    op: Emitter, input: Value, scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: torch.dtype
) -> Value:
    """Emits QuantizeLinear with one scale, and Clip if the limits are narrower than the dtype."""
    return quantized(op, input, scale, zero_point, (quant_min, quant_max), op.out_dtype, ScaleLayout())


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
    """Emits QuantizeLinear with a scale for each index of the axis."""
    return quantized(op, input, scales, zero_points, (quant_min, quant_max), op.out_dtype, ScaleLayout(axis))


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
    """Emits DequantizeLinear with one scale: (input - zero_point) * scale."""
    return op.cast(dequantized(op, input, scale, zero_point, ScaleLayout()), op.out_dtype)


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
    """Emits DequantizeLinear with a scale for each index of the axis."""
    return op.cast(dequantized(op, input, scales, zero_points, ScaleLayout(axis)), op.out_dtype)


_QUANTIZE_TENSOR = (
    quantized_decomposed.quantize_per_tensor.default, quantized_decomposed.quantize_per_tensor.tensor,
    quantized_decomposed.quantize_per_tensor.tensor2,
)  # fmt: skip
_DEQUANTIZE_TENSOR = (
    quantized_decomposed.dequantize_per_tensor.default, quantized_decomposed.dequantize_per_tensor.tensor,
    quantized_decomposed.dequantize_per_tensor.tensor2,
)  # fmt: skip
_QUANTIZABLE: tuple[tuple[int, tuple[torch.dtype, ...]], ...] = ((18, INT8), (21, INT16))
for _since, _dtypes in _QUANTIZABLE:
    translates(*_QUANTIZE_TENSOR, since=_since, supports=_can_quantize_to(*_dtypes))(quantize_per_tensor)
    translates(quantized_decomposed.quantize_per_channel.default, since=_since, supports=_can_quantize_to(*_dtypes))(
        quantize_per_channel
    )
_DEQUANTIZABLE: tuple[tuple[int, tuple[torch.dtype, ...]], ...] = (
    (18, INT8),
    (19, (*INT8, *_FLOAT8)),
    (21, (*INT16, *_FLOAT8)),
)
for _since, _dtypes in _DEQUANTIZABLE:
    translates(*_DEQUANTIZE_TENSOR, since=_since, supports=_can_dequantize_from(*_dtypes))(dequantize_per_tensor)
    translates(
        quantized_decomposed.dequantize_per_channel.default, since=_since, supports=_can_dequantize_from(*_dtypes)
    )(dequantize_per_channel)


def _has_scale_matrix(input: Any, scales: Any, zero_points: Any) -> bool:
    """Returns whether there is one scale for each row and group, which is ONNX's blocked quantization."""
    return (
        input.dtype in INT8
        and scales.dim() == 2
        and (zero_points is None or (zero_points.dim() == 2 and not is_fractional(zero_points)))
    )


@translates(quantized_decomposed.dequantize_per_channel_group.default, since=21, supports=_has_scale_matrix)
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
    """Emits DequantizeLinear in blocks along the columns, with a 4-bit input if the range fits."""
    columns = op.sizes(input)[1]
    block = columns if op.sizes(scales)[1] == 1 and isinstance(columns, int) else group_size
    input = packed_weight(op, input, quant_min, quant_max)
    return op.cast(dequantized(op, input, scales, zero_points, ScaleLayout(1, block)), op.out_dtype)


# ---------------------------------------------------------------- fake quantization


def aten_fake_quantize_per_tensor_affine(
    op: Emitter, self: Value, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> Value:
    """Emits QuantizeLinear and DequantizeLinear in the smallest dtype that holds the range."""
    return _fake_quantize(op, self, scale, zero_point, quant_min, quant_max, ScaleLayout())


def aten_fake_quantize_per_channel_affine(
    op: Emitter, self: Value, scale: Value, zero_point: Value, axis: int, quant_min: int, quant_max: int
) -> Value:
    """Emits QuantizeLinear and DequantizeLinear with a scale for each index of the axis."""
    return _fake_quantize(op, self, scale, zero_point, quant_min, quant_max, ScaleLayout(axis))


def quantized_fake_quant_per_channel(
    op: Emitter, input: Value, scales: Value, zero_points: Value, axis: int, quant_min: int, quant_max: int
) -> Value:
    """Emits QuantizeLinear and DequantizeLinear with a scale for each index of the axis."""
    return _fake_quantize(op, input, scales, zero_points, quant_min, quant_max, ScaleLayout(axis))


def _fake_quantize(
    op: Emitter, value: Value, scale: Any, zero_point: Any, low: int, high: int, layout: ScaleLayout
) -> Value:
    dtype = dtypes.onnx_dtype(smallest_dtype(low, high) or torch.int8)
    integers = quantized(op, value, scale, zero_point, (low, high), dtype, layout)
    return op.cast(dequantized(op, integers, scale, zero_point, layout), op.out_dtype)


_FAKE_TENSOR = (
    aten.fake_quantize_per_tensor_affine.default, aten.fake_quantize_per_tensor_affine.tensor_qparams,
)  # fmt: skip
for _since, _dtypes in _QUANTIZABLE:
    translates(*_FAKE_TENSOR, since=_since, supports=_has_range_of(*_dtypes))(aten_fake_quantize_per_tensor_affine)
    translates(aten.fake_quantize_per_channel_affine.default, since=_since, supports=_has_range_of(*_dtypes))(
        aten_fake_quantize_per_channel_affine
    )
    translates(quantized_decomposed.fake_quant_per_channel.default, since=_since, supports=_has_range_of(*_dtypes))(
        quantized_fake_quant_per_channel
    )


# ---------------------------------------------------------------- products of quantized matrices


@translates(aten._int_mm.default)
def aten_int_mm(op: Emitter, self: Value, mat2: Value) -> Value:
    """Emits MatMulInteger: 8-bit integers, accumulated in 32 bits."""
    return op.MatMulInteger(self, mat2)
