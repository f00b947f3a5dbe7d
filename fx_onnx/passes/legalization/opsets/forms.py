"""Expressions that several rewrites to opsets below 11 share. They use operators of opset 9."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.core import metadata
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.opsets.step import UnsupportedNodeError, known_rank, size_of
from fx_onnx.passes.matchers import constant_array, dims, producer_of

__all__ = [
    "axis_of",
    "counted",
    "gather_elements",
    "rank_of",
    "round_half_to_even",
    "scalar_size",
    "sizes_of",
    "stride",
    "wrapped",
]

_NOT_NEGATIVE = ("ArgMax", "ArgMin", "NonZero", "Shape")


def rank_of(value: Value | None) -> int:
    """Returns the rank.

    Raises:
        UnsupportedNodeError: it is not known.
    """
    return len(sizes_of(value))


def sizes_of(value: Value | None) -> tuple[int | str | None, ...]:
    """Returns the sizes: numbers, names, or None for a size of which nothing is known.

    Raises:
        UnsupportedNodeError: the rank is not known.
    """
    if value is None or value.shape is None:
        raise UnsupportedNodeError("the rank of its input is not known")
    return tuple(size if isinstance(size, int) else size.value for size in value.shape)


def give_rank(f: NodeBuilder) -> None:
    """Gives the first input of the node, if it has no shape, the rank of the first result, which is the same."""
    x = f.node.inputs[0]
    if x is not None and x.shape is None:
        x.shape = ir.Shape([None] * known_rank(f))


def axis_of(f: NodeBuilder, value: Value | None, default: int = 0) -> int:
    """Returns the attribute ``axis`` of the node, counted from 0."""
    axis: int = f.attribute("axis", default)
    return axis if axis >= 0 else axis + rank_of(value)


def scalar_size(f: NodeBuilder, value: Value, axis: int) -> Value:
    """Returns the size of an axis as a scalar: a constant where it is known."""
    size = None if value.shape is None and axis >= 0 else sizes_of(value)[axis]
    if isinstance(size, int):
        return f.constant(size, DataType.INT64)
    result: Value = f.Squeeze(size_of(f, value, axis), axes=[0], sizes=())
    return result


def counted(f: NodeBuilder, count: Value) -> Value:
    """Returns the integers 0, 1, … below ``count``, a scalar that is not negative: a constant where it is known."""
    known = constant_array(count)
    if known is not None:
        return f.constant(np.arange(int(known.reshape(())), dtype=np.int64))
    ones = f.ConstantOfShape(f.Unsqueeze(count, axes=[0], sizes=(1,)), value=ir.Tensor(np.ones(1, np.int64)))
    result: Value = f.Squeeze(f.NonZero(ones), axes=[0])
    result.shape = ir.Shape([None])
    return result


def wrapped(f: NodeBuilder, indices: Value, size: Callable[[], Value]) -> Value:
    """Returns the indices with the size added to negative ones; the size broadcasts to the indices.

    Indices of an embedding stay, because torch admits no negative ones there.
    """
    known = constant_array(indices)
    if known is not None and (known >= 0).all():
        return indices
    if producer_of(indices, *_NOT_NEGATIVE) or "aten.embedding" in f.node.metadata_props.get(metadata.FX_NODE, ""):
        return indices
    added = size()
    bound = constant_array(added)
    if known is not None and bound is not None:
        return f.constant(np.where(known < 0, known + bound, known).astype(known.dtype))
    if indices.dtype is not DataType.INT64:
        added = f.Cast(added, to=int(indices.dtype or DataType.INT64))
    is_negative = f.Less(indices, f.constant(0, indices.dtype))
    result: Value = f.Where(is_negative, f.Add(indices, added), indices, sizes=dims(indices))
    return result


def stride(f: NodeBuilder, value: Value, axis: int, end: int | None = None) -> Value:
    """Returns the number of elements from one index of ``axis`` to the next, among the axes before ``end``."""
    sizes = sizes_of(value)
    later = range(axis + 1, len(sizes) if end is None else end)
    known = [size for each in later if isinstance(size := sizes[each], int)]
    if len(known) == len(later):
        return f.constant(math.prod(known), DataType.INT64)
    result = scalar_size(f, value, later[0])
    for each in later[1:]:
        result = f.Mul(result, scalar_size(f, value, each), sizes=())
    return result


def gather_elements(f: NodeBuilder, x: Value, indices: Value, axis: int) -> Value:
    """Returns the elements that GatherElements selects by indices that are not negative, by a Gather of positions."""
    rank = rank_of(x)
    places: Value = f.Mul(indices, stride(f, x, axis)) if axis < rank - 1 else indices
    for each in [each for each in range(rank) if each != axis]:
        grid = f.Mul(counted(f, scalar_size(f, indices, each)), stride(f, x, each))
        others = [other for other in range(rank) if other != each]
        places = f.Add(places, f.Unsqueeze(grid, axes=others), sizes=dims(indices))
    result: Value = f.Gather(x if rank == 1 else f.Reshape(x, [-1]), places, sizes=dims(indices))
    return result


def round_half_to_even(f: NodeBuilder, x: Value) -> Value:
    """Returns x rounded to the nearest integer, halves to the even one, for floats."""
    sizes = dims(x)
    floor = f.Floor(x, sizes=sizes)
    rest = f.Sub(x, floor, sizes=sizes)  # exact; NaN for an infinity, which then stays
    half = f.Floor(f.Mul(floor, 0.5), sizes=sizes)
    is_odd = f.Greater(f.Sub(floor, f.Mul(half, 2.0)), 0.5, sizes=sizes)
    is_half = f.Not(f.Less(rest, 0.5), sizes=sizes)
    up = f.Or(f.Greater(rest, 0.5), f.And(f.And(is_half, f.Not(f.Greater(rest, 0.5))), is_odd), sizes=sizes)
    result: Value = f.Add(floor, f.Cast(up, to=int(x.dtype or f.dtype)), sizes=sizes)
    return result
