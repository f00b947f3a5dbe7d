"""Decompositions of torchao's operators on quantized tensors into plain arithmetic.

They are used where an opset cannot express the operators, which are registered by name, so that torchao does not have
to be installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_onnx.decompositions._sizes import is_known
from fx_onnx.decompositions.registry import decomposes, quantized

Number = int | float


class _Blocks:
    """The shapes for a computation on a tensor whose elements share scales in blocks.

    Attributes:
        parted: the shape of the tensor, with (number of blocks, block size) for each axis that is split into blocks.
        scales: the shape of the scales, which broadcasts to ``parted``.
        within: the axes of ``parted`` that lie within a block.
    """

    def __init__(self, sizes: Sequence[Any], blocks: Sequence[Any]) -> None:
        self.parted: list[Any] = []
        self.scales: list[Any] = []
        self.within: list[int] = []
        for size, block in zip(sizes, blocks, strict=True):
            if is_known(block, 1):
                self.parted.append(size)
                self.scales.append(size)
                continue
            whole = not isinstance(block, int) or (isinstance(size, int) and size == block)
            if not whole:
                self.parted.append(size // block)
                self.scales.append(size // block)
            self.within.append(len(self.parted))
            self.parted.append(block)
            self.scales.append(1)


def _quantized_range(dtype: torch.dtype, low: Number | None, high: Number | None) -> tuple[Number, Number]:
    """Returns the range of the quantized values, which is that of the dtype by default.

    The dtype may be one that torch defines by name only, such as uint4.
    """
    if dtype.is_floating_point:
        least, most = torch.finfo(dtype).min, torch.finfo(dtype).max
    else:
        name = str(dtype).removeprefix("torch.")
        bits = int(name.lstrip("uint"))
        least = 0 if name.startswith("u") else -(2 ** (bits - 1))
        most = least + 2**bits - 1
    return least if low is None else low, most if high is None else high


def _row_size(blocks: Sequence[Any], zero_point: Tensor | None) -> int | None:
    """Returns the size of blocks that lie along the last axis and have integer zero points; None for other blocks.

    Each such block is a row of a matrix, and each row has its own scale.
    """
    if zero_point is not None and zero_point.dtype.is_floating_point:
        return None
    along_last = isinstance(blocks[-1], int) and all(is_known(b, 1) for b in blocks[:-1])
    return blocks[-1] if along_last else None


@decomposes("torchao::quantize_affine")
def quantize_affine(
    input: Tensor,
    block_size: Sequence[int],
    scale: Tensor,
    zero_point: Tensor | None,
    output_dtype: torch.dtype,
    quant_min: Number | None = None,
    quant_max: Number | None = None,
) -> Tensor:
    """Returns clamp(round(input / scale) + zero_point, quant_min, quant_max), with a scale for each block."""
    low, high = _quantized_range(output_dtype, quant_min, quant_max)
    stored = torch.uint8 if str(output_dtype).startswith("torch.uint") else output_dtype
    row = _row_size(block_size, zero_point)
    if row is not None and zero_point is not None and torch.float32 in (input.dtype, scale.dtype):
        scales, zeros = scale.reshape(-1).float(), zero_point.reshape(-1)
        rows = input.reshape(-1, row).float()
        integers: Tensor = quantized.quantize_per_channel(rows, scales, zeros, 0, low, high, stored)
        return integers.reshape(input.shape)
    blocks = _Blocks(input.shape, block_size)
    rounded = torch.round(input.reshape(blocks.parted) * (1.0 / scale.reshape(blocks.scales)))
    if zero_point is not None:
        rounded = rounded + zero_point.reshape(blocks.scales)
    return torch.clamp(rounded, low, high).reshape(input.shape).to(stored)


@decomposes("torchao::dequantize_affine")
def dequantize_affine(
    input: Tensor,
    block_size: Sequence[int],
    scale: Tensor,
    zero_point: Tensor | None,
    input_dtype: torch.dtype,
    quant_min: Number | None = None,
    quant_max: Number | None = None,
    output_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Returns (input - zero_point) * scale, with a scale for each block."""
    row = _row_size(block_size, zero_point)
    if row is not None and input.dtype in (torch.int8, torch.uint8):
        low, high = _quantized_range(input_dtype, quant_min, quant_max)
        scales, zeros = scale.reshape(-1).float(), None if zero_point is None else zero_point.reshape(-1)
        rows = input.reshape(-1, row)
        values: Tensor = quantized.dequantize_per_channel(rows, scales, zeros, 0, low, high, input.dtype)
        return values.reshape(input.shape).to(output_dtype)
    blocks = _Blocks(input.shape, block_size)
    shifted = input.reshape(blocks.parted).to(output_dtype)
    if zero_point is not None:
        shifted = shifted - zero_point.reshape(blocks.scales).to(output_dtype)
    return (shifted * scale.reshape(blocks.scales)).reshape(input.shape).to(output_dtype)


@decomposes("torchao::choose_qparams_affine")
def choose_qparams_affine(
    input: Tensor,
    mapping_type: str,
    block_size: Sequence[int],
    target_dtype: torch.dtype,
    quant_min: Number | None = None,
    quant_max: Number | None = None,
    eps: float | None = None,
    scale_dtype: torch.dtype | None = None,
    zero_point_dtype: torch.dtype | None = None,
    keepdim: bool = False,
) -> tuple[Tensor, Tensor]:
    """Returns the scale and zero point of each block, whose range includes 0, and may be symmetric about 0."""
    low, high = _quantized_range(target_dtype, quant_min, quant_max)
    eps = torch.finfo(input.dtype).smallest_normal if eps is None else eps
    blocks = _Blocks(input.shape, block_size)
    parted = input.reshape(blocks.parted)
    least = parted.amin(blocks.within, keepdim=keepdim).clamp(max=0)
    most = parted.amax(blocks.within, keepdim=keepdim).clamp(min=0)
    if mapping_type == "ASYMMETRIC":
        scale = ((most - least) / float(high - low)).clamp(min=eps)
        zero_point = (low - torch.round(least / scale)).clamp(low, high)
        zero_point = zero_point.to(zero_point_dtype or torch.int32)
    else:
        if mapping_type == "SYMMETRIC":
            scale = torch.maximum(-least, most) / (float(high - low) / 2)
        else:  # SYMMETRIC_NO_CLIPPING_ERR: the larger of the scales that the two sides need
            scale = torch.maximum(least / float(low), most / float(high))
        zero_point = torch.full_like(scale, int((high + low + 1) / 2))
        zero_point = zero_point.to(zero_point_dtype or zero_point.dtype)
        scale = scale.clamp(min=eps)
    if keepdim:
        sizes = [_block_count(size, block) for size, block in zip(input.shape, block_size, strict=True)]
        scale, zero_point = scale.reshape(sizes), zero_point.reshape(sizes)
    return scale.to(scale_dtype or input.dtype), zero_point


def _block_count(size: Any, block: Any) -> Any:
    """Returns the number of blocks along an axis; a symbolic block is a whole axis."""
    return size // block if isinstance(block, int) else 1


@decomposes("torchao::choose_scale_float8")
def choose_scale_float8(
    tensor: Tensor,
    block_size: Sequence[int],
    float8_dtype: torch.dtype = torch.float8_e4m3fn,
    scale_dtype: torch.dtype = torch.float32,
    hp_value_lb: float | None = None,
    hp_value_ub: float | None = None,
) -> Tensor:
    """Returns max(abs) / the largest 8-bit float, for each block.

    It is rounded to a power of two if the dtype of the scales is float8_e8m0fnu.
    """
    blocks = _Blocks(tensor.shape, block_size)
    largest = tensor.reshape(blocks.parted).abs().amax(blocks.within, keepdim=True)
    if hp_value_lb is not None or hp_value_ub is not None:
        largest = largest.clamp(hp_value_lb, hp_value_ub)
    scale = largest / torch.finfo(float8_dtype).max
    scale = scale.reshape([_block_count(size, block) for size, block in zip(tensor.shape, block_size, strict=True)])
    if scale_dtype is torch.float8_e8m0fnu:
        scale = torch.exp2(torch.round(torch.log2(scale)))
    return scale.float()


def _repeat_over_blocks(scale: Tensor, sizes: Sequence[Any]) -> Tensor:
    """Returns the scales, repeated over their blocks where they would not broadcast."""
    if scale.dim() != len(sizes):
        return scale
    for axis, (count, size) in enumerate(zip(scale.shape, sizes, strict=True)):
        if isinstance(count, int) and isinstance(size, int) and 1 < count < size:
            scale = scale.repeat_interleave(size // count, axis)
    return scale


@decomposes("torchao::quantize_affine_float8_non_decomposed")
def quantize_affine_float8_non_decomposed(
    tensor: Tensor, scale: Tensor, float8_dtype: torch.dtype = torch.float8_e4m3fn
) -> Tensor:
    """Returns tensor / scale, clamped to the range of the 8-bit float."""
    largest = torch.finfo(float8_dtype).max
    return (tensor.float() / _repeat_over_blocks(scale, tensor.shape)).clamp(-largest, largest).to(float8_dtype)


@decomposes("torchao::dequantize_affine_float8_non_decomposed")
def dequantize_affine_float8_non_decomposed(
    tensor: Tensor, scale: Tensor, output_dtype: torch.dtype = torch.float32
) -> Tensor:
    """Returns tensor * scale."""
    return (tensor.float() * _repeat_over_blocks(scale, tensor.shape)).to(output_dtype)
