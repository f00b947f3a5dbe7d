"""torchao's operators on quantized tensors: QuantizeLinear and DequantizeLinear.

The operators are registered by name, so that torchao does not have to be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from onnx_ir import Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translations._quantize_linear import (
    INT8,
    ScaleLayout,
    dequantized,
    is_fractional,
    packed_weight,
    quantized,
    scale_layout,
)


def _can_quantize(blocks: bool) -> Callable[..., bool]:
    """Returns a predicate that accepts 8-bit results whose layout ONNX has; with ``blocks``, also blocked layouts."""

    def is_supported(input: Any, block_size: Any, scale: Any, zero_point: Any, output_dtype: torch.dtype) -> bool:
        # In a narrower dtype, torch rounds the quotient to that dtype before it rounds to integers.
        is_exact = torch.float32 in (input.dtype, scale.dtype)
        is_integer = output_dtype in INT8 and zero_point is not None
        return is_exact and is_integer and _has_layout(input, block_size, zero_point, blocks)

    return is_supported


def _can_dequantize(blocks: bool) -> Callable[..., bool]:
    """Returns a predicate that accepts 8-bit inputs whose layout ONNX has; with ``blocks``, also blocked layouts."""

    def is_supported(input: Any, block_size: Any, zero_point: Any) -> bool:
        return input.dtype in INT8 and _has_layout(input, block_size, zero_point, blocks)

    return is_supported


def _has_layout(input: Any, block_size: Any, zero_point: Any, blocks: bool) -> bool:
    """Returns whether ONNX can express the layout of the scales, and the zero point is an integer."""
    layout = scale_layout(input.shape, block_size)
    return layout is not None and (blocks or layout.block is None) and not is_fractional(zero_point)


def _with_layout(
    op: Emitter, value: Value, block_size: Sequence[Size], *parameters: Value | None
) -> tuple[ScaleLayout, Any]:
    """Returns the layout, and each parameter reshaped to the sizes of that layout."""
    sizes = op.sizes(value)
    layout = scale_layout(sizes, block_size) or ScaleLayout()
    return layout, [None if p is None else op.reshape(p, layout.sizes(sizes)) for p in parameters]


@translates("torchao::quantize_affine", supports=_can_quantize(blocks=False))
@translates("torchao::quantize_affine", since=21, supports=_can_quantize(blocks=True))
def torchao_quantize_affine(
    op: Emitter,
    input: Value,
    block_size: Sequence[Size],
    scale: Value,
    zero_point: Value,
    output_dtype: torch.dtype,
    quant_min: int | None = None,
    quant_max: int | None = None,
) -> Value:
    """Emits QuantizeLinear with a scale for each block, and Clip if the limits are narrower than the dtype."""
    layout, (scale, zero_point) = _with_layout(op, input, block_size, scale, zero_point)
    limits = _quantized_range(output_dtype, quant_min, quant_max)
    return quantized(op, input, scale, zero_point, limits, op.out_dtype, layout)


@translates("torchao::dequantize_affine", supports=_can_dequantize(blocks=False))
@translates("torchao::dequantize_affine", since=21, supports=_can_dequantize(blocks=True))
def torchao_dequantize_affine(
    op: Emitter,
    input: Value,
    block_size: Sequence[Size],
    scale: Value,
    zero_point: Value | None,
    input_dtype: torch.dtype,
    quant_min: int | None = None,
    quant_max: int | None = None,
    output_dtype: torch.dtype = torch.float32,
) -> Value:
    """Emits DequantizeLinear with a scale for each block.

    A weight is stored in the fewest bits that hold its range.
    """
    layout, (scale, zero_point) = _with_layout(op, input, block_size, scale, zero_point)
    input = packed_weight(op, input, *_quantized_range(input_dtype, quant_min, quant_max))
    return op.cast(dequantized(op, input, scale, zero_point, layout), op.out_dtype)


def _quantized_range(dtype: torch.dtype, low: int | None, high: int | None) -> tuple[int, int]:
    """Returns the range of the quantized values, by default that of the dtype.

    The dtype may be one that torch only declares, such as uint4, so its range is computed from its name.
    """
    name = str(dtype).removeprefix("torch.")
    bits = int(name.lstrip("uint"))
    least = 0 if name.startswith("u") else -(2 ** (bits - 1))
    return least if low is None else int(low), least + 2**bits - 1 if high is None else int(high)
