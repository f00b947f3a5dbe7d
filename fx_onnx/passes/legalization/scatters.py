"""Legalization of reads and writes at positions that a tensor holds."""

from __future__ import annotations

import functools
import math

from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import (
    counted,
    rank_of,
    scalar_size,
    sizes_of,
)

__all__ = ["gather_elements", "stride"]


def gather_elements(f: NodeBuilder, x: Value, indices: Value, axis: int) -> Value:
    """Returns the elements that GatherElements selects by indices that are not negative, by a Gather of positions."""
    rank = rank_of(x)
    places = f.Mul(indices, stride(f, x, axis)) if axis < rank - 1 else indices
    for dim in [dim for dim in range(rank) if dim != axis]:
        grid = f.Mul(counted(f, scalar_size(f, indices, dim)), stride(f, x, dim))
        places = f.Add(places, f.Unsqueeze(grid, [other for other in range(rank) if other != dim]))
    return f.Gather(x if rank == 1 else f.Reshape(x, [-1]), places)


def stride(f: NodeBuilder, value: Value, axis: int, end: int | None = None) -> Value:
    """Returns the number of elements from one index of ``axis`` to the next, among the axes before ``end``."""
    sizes = sizes_of(value)
    later = range(axis + 1, len(sizes) if end is None else end)
    known = [size for dim in later if isinstance(size := sizes[dim], int)]
    if len(known) == len(later):
        return f.constant(math.prod(known), DataType.INT64)
    return functools.reduce(f.Mul, [scalar_size(f, value, dim) for dim in later])
