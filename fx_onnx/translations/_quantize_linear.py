"""Emits QuantizeLinear and DequantizeLinear for PyTorch's operators and for torchao's.

torch multiplies by the reciprocal of the scale; ONNX divides by the scale. A value within a rounding error of the
midpoint between two integers can therefore round to the other one. Both round the exact midpoint to the even integer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import onnx_ir as ir
import torch
from onnx_ir import DataType, Value

from fx_onnx.onnx_model import dtypes
from fx_onnx.sizes.symbolic_sizes import Size, same_size, static
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translations._widening import admitted_dtypes

INT8 = (torch.uint8, torch.int8)
INT16 = (*INT8, torch.int16, torch.uint16)


class ScaleLayout(NamedTuple):
    """The layout of the scales of a tensor: it tells which elements share a scale.

    Without ``axis``, all elements share one scale. With ``axis``, each index along that axis has its own scale. With
    ``block`` too, ``block`` consecutive elements along the axis share a scale, separately for each index of the other
    axes (ONNX's blocked quantization).
    """

    axis: int | None = None
    block: int | None = None

    def sizes(self, whole: Sequence[Size]) -> list[Size]:
        """Returns the sizes of the scales of a tensor of sizes ``whole``."""
        if self.axis is None:
            return []
        if self.block is None:
            return [whole[self.axis]]
        return [size // self.block if i == self.axis else size for i, size in enumerate(whole)]


def scale_layout(sizes: Sequence[Size], blocks: Sequence[Size]) -> ScaleLayout | None:
    """Returns the layout in which every block of sizes ``blocks`` has one scale, or None if ONNX has no such layout."""
    sizes, blocks = [static(size) for size in sizes], [static(size) for size in blocks]
    axes = [i for i, size in enumerate(sizes) if not (isinstance(size, int) and size == 1)]
    single = [i for i in axes if isinstance(blocks[i], int) and blocks[i] == 1]
    shared = [i for i in axes if i not in single]
    whole = [i for i in shared if same_size(sizes[i], blocks[i])]
    if whole == shared and not single:
        return ScaleLayout()
    if whole == shared and len(single) == 1:
        return ScaleLayout(single[0])
    if len(shared) == 1 and isinstance(block := blocks[shared[0]], int):
        return ScaleLayout(shared[0], block)
    return None


def is_fractional(zero_point: Any) -> bool:
    """Returns whether a zero point has a floating-point dtype; ONNX requires an integer."""
    return isinstance(zero_point, torch.Tensor) and zero_point.dtype.is_floating_point


def smallest_dtype(low: int, high: int) -> torch.dtype | None:
    """Returns the smallest integer dtype of at least 8 bits that represents ``low`` and ``high``, or None."""
    return next((d for d in INT16 if torch.iinfo(d).min <= low and high <= torch.iinfo(d).max), None)


def quantized(
    op: Emitter,
    value: Value,
    scale: Any,
    zero_point: Any,
    limits: tuple[Any, Any],
    dtype: DataType,
    layout: ScaleLayout,
) -> Value:
    """Emits QuantizeLinear: clamp(round(value / scale) + zero_point, *limits) in ``dtype``.

    A Clip follows if the limits are narrower than the dtype.
    """
    value = op.cast(value, DataType.FLOAT)
    scale = _parameter(op, scale, DataType.FLOAT, layout)
    zero_point = _parameter(op, zero_point, dtype, layout)
    result: Value = op.QuantizeLinear(value, scale, zero_point, axis=layout.axis, block_size=layout.block)
    whole = torch.iinfo(dtypes.torch_dtype(dtype))
    if limits == (whole.min, whole.max):
        return result
    return op.Clip(result, *(_parameter(op, limit, dtype, ScaleLayout()) for limit in limits))


def dequantized(op: Emitter, value: Value, scale: Any, zero_point: Any, layout: ScaleLayout) -> Value:
    """Emits DequantizeLinear: (value - zero_point) * scale as FLOAT; a constant zero point of 0 is left out."""
    scale = _parameter(op, scale, DataType.FLOAT, layout)
    no_zero_point = zero_point is None or (isinstance(zero_point, int) and zero_point == 0)
    zero = None if no_zero_point else _parameter(op, zero_point, value.dtype or DataType.INT8, layout)
    result: Value = op.DequantizeLinear(value, scale, zero, axis=layout.axis, block_size=layout.block)
    # The result has the dtype of the scale, because no node sets the attribute output_dtype of opset 23.
    result.type = ir.TensorType(DataType.FLOAT)
    return result


def packed_weight(op: Emitter, value: Value, low: int, high: int) -> Value:
    """Returns a weight with values in [low, high] in the fewest bits that DequantizeLinear admits.

    Returns the value unchanged if it is not a weight.
    """
    small = (DataType.UINT2, DataType.UINT4) if value.dtype == DataType.UINT8 else (DataType.INT2, DataType.INT4)
    types = admitted_dtypes(op, "DequantizeLinear") or ()
    fitting = (dtype for dtype in small if dtype in types and dtype.min <= low and high <= dtype.max)
    dtype = next(fitting, None) if value.is_initializer() else None
    return value if dtype is None else op.cast(value, dtype)


def _parameter(op: Emitter, parameter: Any, dtype: DataType, layout: ScaleLayout) -> Value:
    """Returns a scale, zero point or limit in ``dtype``; one that holds for the whole tensor becomes 0-d."""
    value = op.cast(parameter, dtype)
    return op.reshape(value, []) if layout.axis is None and isinstance(parameter, Value) else value
