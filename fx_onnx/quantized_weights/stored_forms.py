"""How libraries pack quantized weights: functions of packed tensors, which return integers of 8 bits or scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["FORMS"]


def _nibbles(packed: Tensor, is_high_first: int = 0, offset: int = 0) -> Tensor:
    """Returns the two halves of each byte (..., 2 n), side by side."""
    halves = [packed & 15, packed >> 4]
    return _less(torch.stack(halves[::-1] if is_high_first else halves, -1), offset)


def _joined_nibbles(packed: Tensor) -> Tensor:
    """Returns the halves of the bytes of blocks (..., blocks, bytes) side by side (MXFP4 of gpt-oss)."""
    return _nibbles(packed).flatten(-2)


def _flat_nibbles(packed: Tensor, *sizes: int) -> Tensor:
    """Returns a tensor whose elements were packed as one vector, the first into the upper half (bitsandbytes)."""
    return _nibbles(packed.reshape(-1).view(torch.uint8), 1)[: math.prod(sizes)].reshape(sizes)


def _slots(packed: Tensor, bits: int, width: int, rows: int, is_high_first: int, offset: int) -> Tensor:
    """Returns rows that are stacked in the slots of integers of ``width`` used bits (HQQ, quanto, bitnet)."""
    shifts = range(0, width, bits)
    parts = [(packed >> shift) & (2**bits - 1) for shift in (reversed(shifts) if is_high_first else shifts)]
    values = torch.cat(parts)[:rows]
    return values.to(torch.uint8) if not offset else (values.to(torch.int16) - offset).to(torch.int8)


def _words(packed: Tensor, bits: int, columns: int, axis: int) -> Tensor:
    """Returns integers around 0 of words of 32 bits, without gaps (``pack-quantized`` of compressed-tensors)."""
    words = (packed if axis else packed.transpose(-1, -2)).long() & 0xFFFFFFFF
    words = torch.cat([words, torch.zeros_like(words[..., :1])], -1)
    first = torch.arange(columns, device=packed.device) * bits
    pairs = words[..., first // 32] | (words[..., first // 32 + 1] & (2**bits - 1)) << 32
    values = ((pairs >> (first % 32)) & (2**bits - 1)) - 2 ** (bits - 1)
    result: Tensor = (values if axis else values.transpose(-1, -2)).to(torch.int8)
    return result


def _rows_repeated(scale: Tensor, block: int, rows: int) -> Tensor:
    return scale.repeat_interleave(block, -2)[..., :rows, :]


def _tiles(scale: Tensor, rows: int, columns: int) -> Tensor:
    """Returns scales (rows, columns) that are stored in tiles of 128 rows and 4 columns, as cuBLAS reads them."""
    across = -(-columns // 4)
    tiles = scale.reshape(-1, across, 32, 4, 4).permute(0, 3, 2, 1, 4)
    return tiles.reshape(-1, 4 * across)[:rows, :columns]


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint8)


# --- blocks of ggml (Source: ggml-common.h, ggml-quants.c): (rows, bytes) → (rows, columns) or (rows, groups) ---------


def _fields(blocks: Tensor, size: int, start: int, stop: int) -> Tensor:
    """Returns the bytes of a field of each block: (rows, blocks, bytes)."""
    parts: Any = blocks.unflatten(-1, (-1, size))  # torch does not annotate unflatten
    result: Tensor = parts[..., start:stop]
    return result


def _half(blocks: Tensor, size: int, start: int) -> Tensor:
    """Returns the float16 number at a byte of each block."""
    return _fields(blocks, size, start, start + 2).contiguous().view(torch.float16).flatten(-2)


def _planes(field: Tensor, bits: int, width: int) -> Tensor:
    """Returns integers (rows, blocks, integers): ``width`` bytes give their lowest bits first, then the next ones."""
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=field.device)[:, None]
    parts: Any = field.unflatten(-1, (-1, 1, width))
    result: Tensor = ((parts >> shifts) & (2**bits - 1)).flatten(-3)
    return result


def _ggml_planes(blocks: Tensor, size: int, start: int, stop: int, bits: int, width: int, offset: int = 0) -> Tensor:
    return _less(_planes(_fields(blocks, size, start, stop), bits, width), offset)


def _less(values: Tensor, offset: int) -> Tensor:
    """Returns integers without a sign less an offset: int8, or uint8 if there is none."""
    return (values.to(torch.int8) - offset if offset else values).flatten(-2)


def _ggml_bytes(blocks: Tensor, size: int, start: int, stop: int) -> Tensor:
    return _fields(blocks, size, start, stop).contiguous().view(torch.int8).flatten(-2)


def _ggml_k_scales(blocks: Tensor, size: int, is_minimum: int) -> Tensor:
    """Returns the scales, or the minima, of Q4_K and Q5_K: integers of 6 bits for each 32 elements."""
    low, high, upper = _fields(blocks, size, 4, 16).split(4, -1)
    first, both = (high, upper >> 4) if is_minimum else (low, upper & 15)
    return torch.cat([first & 63, both | (first >> 6) << 4], -1).flatten(-2)


def _ggml_q2_k_scales(blocks: Tensor, is_minimum: int) -> Tensor:
    """Returns the scales, or the minima, of Q2_K: integers of 4 bits for each 16 elements."""
    field = _fields(blocks, 84, 0, 16)
    return (field >> 4 if is_minimum else field & 15).flatten(-2)


def _ggml_q4_k(blocks: Tensor) -> Tensor:
    return _planes(_fields(blocks, 144, 16, 144), 4, 32).flatten(-2)


def _ggml_q5_k(blocks: Tensor) -> Tensor:
    low, high = _planes(_fields(blocks, 176, 48, 176), 4, 32), _planes(_fields(blocks, 176, 16, 48), 1, 32)
    return (low | high << 4).flatten(-2)


def _ggml_q6_k(blocks: Tensor) -> Tensor:
    low, high = _planes(_fields(blocks, 210, 0, 128), 4, 64), _planes(_fields(blocks, 210, 128, 192), 2, 32)
    return _less(low | high << 4, 32)


def _ggml_q3_k(blocks: Tensor) -> Tensor:
    low, high = _planes(_fields(blocks, 110, 32, 96), 2, 32), _planes(_fields(blocks, 110, 0, 32), 1, 32)
    return _less(low | high << 2, 4)


def _ggml_q3_k_scales(blocks: Tensor) -> Tensor:
    """Returns the scales of Q3_K: integers of 6 bits for each 16 elements, less 32."""
    field = _fields(blocks, 110, 96, 108)
    return _less(_planes(field[..., :8], 4, 8) | _planes(field[..., 8:], 2, 4) << 4, 32)


FORMS: Mapping[str, Callable[..., Tensor]] = {
    "nibbles": _nibbles,
    "joined nibbles": _joined_nibbles,
    "flat nibbles": _flat_nibbles,
    "slots": _slots,
    "words": _words,
    "rows repeated": _rows_repeated,
    "bytes": _bytes,
    "rows": Tensor.reshape,
    "tiles of 128": _tiles,
    "ggml half": _half,
    "ggml planes": _ggml_planes,
    "ggml bytes": _ggml_bytes,
    "ggml k scales": _ggml_k_scales,
    "ggml q2_k scales": _ggml_q2_k_scales,
    "ggml q4_k": _ggml_q4_k,
    "ggml q5_k": _ggml_q5_k,
    "ggml q6_k": _ggml_q6_k,
    "ggml q3_k": _ggml_q3_k,
    "ggml q3_k scales": _ggml_q3_k_scales,
}
"""The functions by name. A function takes tensors, then integers."""
