"""Decompositions of views that read the bits of a tensor as another dtype."""

import functools

import torch
from torch import Tensor

from fx_onnx.decompositions.registry import aten, decomposes

_SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_UNSIGNED = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}


@decomposes(aten.view.dtype, aten.view_copy.dtype)
def view_dtype(self: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the bits of the last axis as numbers of another width; the first number is in the lowest bits.

    The numbers are shifted as 64-bit integers; the conversion to a narrower integer keeps the lowest bits.

    Raises:
        NotImplementedError: a floating-point dtype has the same width, so only BitCast could read its bits.
    """
    old, new = self.itemsize, dtype.itemsize
    if old == new or self.is_complex() or dtype.is_complex:
        raise NotImplementedError(
            f"Only ONNX's BitCast can read {self.dtype} as {dtype}. Export with opset_version=26 or above for float16, "
            "bfloat16, float32 and float64; ONNX Runtime has no BitCast of other floating-point dtypes."
        )
    numbers = self.view((_SIGNED if new < old else _UNSIGNED)[old]).to(torch.int64)
    places = range(0, 8 * max(old, new), 8 * min(old, new))
    if new < old:
        numbers = torch.stack([numbers >> shift for shift in places], -1).flatten(-2)
    else:
        parts = numbers.reshape((*self.shape[:-1], self.size(-1) // len(places), len(places))).unbind(-1)
        numbers = functools.reduce(torch.bitwise_or, (part << shift for part, shift in zip(parts, places, strict=True)))
    return numbers.to(_SIGNED[new]).view(dtype)
