"""What QuantizeLinear and DequantizeLinear say: for the operators of PyTorch, and for those of torchao.

torch multiplies by the reciprocal of the scale where ONNX divides by the scale: a value within a rounding error of the
middle between two integers may come out as the other one. Both round the middle itself to the even integer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import onnx_ir as ir
import torch
from onnx_ir import DataType, Value

from fx_onnx.core import dtypes
from fx_onnx.core.symbolic_sizes import Size, same_size, static
from fx_onnx.ops._widening import admitted_dtypes
from fx_onnx.translation.emitter import Emitter

INT8 = (torch.uint8, torch.int8)
INT16 = (*INT8, torch.int16, torch.uint16)


class ScaleLayout(NamedTuple):
    """Which elements share a scale: all; those of one index of ``axis``; or ``block`` neighbours along ``axis``."""

    axis: int | None = None
    block: int | None = None

    def sizes(self, whole: Sequence[Size]) -> list[Size]:
        """The sizes of the scales of a tensor of sizes ``whole``."""
        if self.axis is None:
            return []
        if self.block is None:
            return [whole[self.axis]]
        return [size // self.block if i == self.axis else size for i, size in enumerate(whole)]


def scale_layout(sizes: Sequence[Size], blocks: Sequence[Size]) -> ScaleLayout | None:
    """The layout of scales that blocks of sizes ``blocks`` have each; None where ONNX has none like it."""
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
    """Whether a zero point is no integer, which ONNX's always is."""
    return isinstance(zero_point, torch.Tensor) and zero_point.dtype.is_floating_point


def smallest_dtype(low: int, high: int) -> torch.dtype | None:
    """The smallest dtype of 8 bits or more with these values."""
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
    """round(value / scale) + zero_point in ``dtype``, no less and no more than the two ``limits``."""
    value = op.cast(value, DataType.FLOAT)
    scale = _parameter(op, scale, DataType.FLOAT, layout)
    zero_point = _parameter(op, zero_point, dtype, layout)
    result: Value = op.QuantizeLinear(value, scale, zero_point, axis=layout.axis, block_size=layout.block)
    whole = torch.iinfo(dtypes.torch_dtype(dtype))
    if limits == (whole.min, whole.max):
        return result
    return op.Clip(result, *(_parameter(op, limit, dtype, ScaleLayout()) for limit in limits))


def dequantized(op: Emitter, value: Value, scale: Any, zero_point: Any, layout: ScaleLayout) -> Value:
    """(value - zero_point) * scale as FLOAT; a zero point of zero is left out."""
    scale = _parameter(op, scale, DataType.FLOAT, layout)
    none = zero_point is None or (isinstance(zero_point, int) and zero_point == 0)
    zero = None if none else _parameter(op, zero_point, value.dtype or DataType.INT8, layout)
    result: Value = op.DequantizeLinear(value, scale, zero, axis=layout.axis, block_size=layout.block)
    result.type = ir.TensorType(DataType.FLOAT)  # the scale's, unless an attribute of opset 23 says another
    return result


def packed_weight(op: Emitter, value: Value, low: int, high: int) -> Value:
    """A weight with values in [low, high] in the fewest bits that DequantizeLinear takes; anything else as it is."""
    small = (DataType.UINT2, DataType.UINT4) if value.dtype == DataType.UINT8 else (DataType.INT2, DataType.INT4)
    types = admitted_dtypes(op, "DequantizeLinear") or ()
    fitting = (dtype for dtype in small if dtype in types and dtype.min <= low and high <= dtype.max)
    dtype = next(fitting, None) if value.is_initializer() else None
    return value if dtype is None else op.cast(value, dtype)


def _parameter(op: Emitter, parameter: Any, dtype: DataType, layout: ScaleLayout) -> Value:
    """A scale, zero point or limit in ``dtype``: one number per tensor, which torch may give as a vector of one."""
    value = op.cast(parameter, dtype)
    return op.reshape(value, []) if layout.axis is None and isinstance(parameter, Value) else value
