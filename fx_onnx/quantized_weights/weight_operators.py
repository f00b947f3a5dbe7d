"""Operators on the weights of quantized checkpoints: ``fx_onnx::stored`` unpacks, ``fx_onnx::dequantize`` multiplies.

Replacements of layers call them during a capture, so that a captured program tells what a packed weight means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_onnx.quantized_weights.stored_forms import FORMS
from fx_onnx.torch_internals.custom_ops import define_operator

__all__ = ["FLOAT4_VALUES", "dequantize", "exponents_as_floats", "stored"]

FLOAT4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
"""The numbers of the codes of float4_e2m1 (Source: OCP Microscaling Formats 1.0)."""


def exponents_as_floats(exponents: Tensor) -> Tensor:
    """Returns the numbers of E8M0 codes (uint8): powers of two, and NaN for 255."""
    return exponents.view(torch.float8_e8m0fnu).float()


def stored(form: str, *sources: Tensor, numbers: Sequence[int] = ()) -> Tensor:
    """Returns what ``FORMS[form]`` computes from weights. In a model it is a weight, computed when it is saved."""
    result: Tensor = torch.ops.fx_onnx.stored(list(sources), form, list(numbers))
    return result


def dequantize(
    data: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    offset: Tensor | None = None,
    blocks: Sequence[int] = (),
    kind: str = "numbers",
    table: Tensor | None = None,
    bits: int = 8,
    dtype: torch.dtype,
) -> Tensor:
    """Returns (numbers - zero) * scale + offset, computed in float32 and rounded to ``dtype``.

    Args:
        data: the weight: 8-bit floats, or int8 or uint8.
        scale: floats, or exponents of E8M0 in uint8. It broadcasts to ``data``, or has one for each block.
        zero: integers in the dtype of ``data``, or floats, of the shape of ``scale``; None for 0.
        offset: floats of the shape of ``scale``; None for 0.
        blocks: how many elements share a scale along each axis; the last block may be shorter. Empty if it broadcasts.
        kind: what an element is: "numbers", a code of "float4_e2m1", or an index into a "table".
        table: 16 or 256 floats for the kind "table".
        bits: how many bits of an integer are used.
        dtype: the dtype of the result.
    """
    result: Tensor = torch.ops.fx_onnx.dequantize(data, scale, zero, offset, table, list(blocks), kind, bits, dtype)
    return result


def _stored(sources: Sequence[Tensor], form: str, numbers: Sequence[int]) -> Tensor:
    return FORMS[form](*sources, *numbers).contiguous()


def _dequantize(
    data: Tensor, scale: Tensor, zero: Tensor | None, offset: Tensor | None, table: Tensor | None,
    blocks: Sequence[int], kind: str, bits: int, dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    floats = exponents_as_floats(scale) if scale.dtype == torch.uint8 else scale.float()
    values = torch.tensor(FLOAT4_VALUES) if kind == "float4_e2m1" else table
    numbers = data.float() if values is None else values.to(data.device)[data.long()].float()
    if zero is not None:
        numbers = numbers - _repeated(zero.float(), blocks, data.shape)
    numbers = numbers * _repeated(floats, blocks, data.shape)
    return (numbers if offset is None else numbers + _repeated(offset.float(), blocks, data.shape)).to(dtype)


def _repeated(parameter: Tensor, blocks: Sequence[int], sizes: Sequence[int]) -> Tensor:
    for axis, block in enumerate(blocks):
        if block > 1:
            parameter = parameter.repeat_interleave(block, axis).narrow(axis, 0, sizes[axis])
    return parameter


def _dequantize_sizes(
    data: Tensor, scale: Tensor, zero: Any, offset: Any, table: Any, blocks: Any, kind: str, bits: int,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    return data.new_empty(data.shape, dtype=dtype)


define_operator("stored(Tensor[] sources, str form, int[] numbers) -> Tensor", _stored, _stored)
define_operator(
    "dequantize(Tensor data, Tensor scale, Tensor? zero, Tensor? offset, Tensor? table, int[] blocks, str kind, "
    "int bits, ScalarType dtype) -> Tensor",
    _dequantize,
    _dequantize_sizes,
)
