"""Legalization of gathers and scatters: of negative indices, and of operators by the positions of elements."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.core import metadata
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import (
    axis_of,
    counted,
    rank_of,
    scalar_size,
    size_of,
    sizes_of,
    static_integers,
)
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import (
    constant_array,
    dims,
    producer_of,
)
from fx_onnx.passes.rules import DeclinedError, Result

__all__ = ["gather_elements", "indexed_axes", "legalize_gather_elements", "stride", "wrapped"]

_NOT_NEGATIVE = ("ArgMax", "ArgMin", "NonZero", "Shape")

_FEW = 31
"""The choices that numpy.choose takes in every version."""


# ---------------------------------------------------------------- negative indices


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
        added = f.Cast(added, to=indices.dtype)
    return f.Where(f.Less(indices, 0), f.Add(indices, added), indices)


@legalizes("Gather(x, indices)", until=10)
def gather_without_negative_indices(f: NodeBuilder, x: Value, indices: Value) -> Result:
    """Gather<axis>(x, i) → Gather<axis>(x, Where(i < 0, i + size, i)).

    Legal because a negative index counts from the end of the axis. Opset 10 has no negative indices and axes.
    """
    axis = axis_of(f, x)
    return f.Gather(x, wrapped(f, indices, lambda: scalar_size(f, x, axis)), axis=axis)


@legalizes("OneHot(indices, depth, values)", until=10)
def one_hot_without_negative_indices(
    f: NodeBuilder, node: ir.Node, indices: Value, depth: Value, values: Value
) -> Result:
    """OneHot(i, depth, values) → OneHot(Where(i < 0, i + depth, i), depth, values).

    Legal because a negative index counts from ``depth`` down. Opset 10 has no negative indices.
    """
    wide = functools.partial(f.Cast, depth, to=DataType.INT64)
    return f.OneHot(wrapped(f, indices, wide), depth, values, **dict(node.attributes))


@legalizes("ScatterElements(x, indices, updates)", until=10)
def scatter_without_negative_indices(f: NodeBuilder, x: Value, indices: Value, updates: Value) -> Result:
    """ScatterElements<axis>(x, i, u) → Scatter<axis>(x, i, u).

    Legal because opset 10 names the operator Scatter. Negative indices and axes are counted from the end.
    """
    axis = axis_of(f, x)
    return f.Scatter(x, wrapped(f, indices, lambda: scalar_size(f, x, axis)), updates, axis=axis)


# ---------------------------------------------------------------- elements by their positions


@legalizes("GatherElements(x, indices)", until=10)
def gather_positions(f: NodeBuilder, x: Value, indices: Value) -> Result:
    """GatherElements<axis>(x, i) → Gather(Reshape(x, [-1]), positions of the elements).

    Legal because the position of an element of the flattened x is the sum of its indices times their strides.
    """
    axis = axis_of(f, x)
    return gather_elements(f, x, wrapped(f, indices, lambda: scalar_size(f, x, axis)), axis)


def gather_elements(f: NodeBuilder, x: Value, indices: Value, axis: int) -> Value:
    """Returns the elements that GatherElements selects by indices that are not negative, by a Gather of positions."""
    rank = rank_of(x)
    places = f.Mul(indices, stride(f, x, axis)) if axis < rank - 1 else indices
    for each in [each for each in range(rank) if each != axis]:
        grid = f.Mul(counted(f, scalar_size(f, indices, each)), stride(f, x, each))
        places = f.Add(places, f.Unsqueeze(grid, [other for other in range(rank) if other != each]))
        places.shape = indices.shape
    return f.Gather(x if rank == 1 else f.Reshape(x, [-1]), places)


def stride(f: NodeBuilder, value: Value, axis: int, end: int | None = None) -> Value:
    """Returns the number of elements from one index of ``axis`` to the next, among the axes before ``end``."""
    sizes = sizes_of(value)
    later = range(axis + 1, len(sizes) if end is None else end)
    known = [size for each in later if isinstance(size := sizes[each], int)]
    if len(known) == len(later):
        return f.constant(math.prod(known), DataType.INT64)
    return functools.reduce(f.Mul, [scalar_size(f, value, each) for each in later])


@legalizes("GatherElements(x, indices, axis=axis)", targets=("reference",))
def legalize_gather_elements(f: NodeBuilder, x: Value, indices: Value, axis: int) -> Result:
    """GatherElements(x, i, axis) → GatherND(x, c), where c has the coordinates of each element.

    Legal because ONNX defines both by the same coordinates. Short axes stay. The reference evaluator (measured with
    onnx 1.23.2) computes it by ``numpy.choose``, which takes few choices. From 32 or 64 elements on, by the version of
    NumPy, it reads one index of each row of a matrix, so that the result is wrong or there is none. It also refuses
    indices that are shorter than the tensor along another axis.
    """
    sizes, found = dims(x), dims(indices)
    if not sizes or found is None:
        return "the rank is unknown"
    axis, rank = axis % len(sizes), len(sizes)
    length = sizes[axis]
    if isinstance(length, int) and length <= _FEW and _without(sizes, axis) == _without(found, axis):
        return None
    shape = f.Shape(indices)
    coordinates = []
    for place in range(rank):
        number = indices
        if place != axis:
            every = f.Range(0, f.Squeeze(f.Shape(indices, start=place, end=place + 1), [0]), 1)
            beside = [each for each in range(rank) if each != place]
            number = f.Expand(f.Unsqueeze(every, beside) if beside else every, shape)
        elif indices.dtype != DataType.INT64:
            number = f.Cast(indices, to=DataType.INT64)
        coordinates.append(f.Unsqueeze(number, [rank]))
    return f.GatherND(x, f.Concat(*coordinates, axis=rank))


def _without(sizes: tuple[int | str, ...], axis: int) -> tuple[int | str, ...]:
    return sizes[:axis] + sizes[axis + 1 :]


@legalizes("OneHot(indices, depth, values)", until=8)
def one_hot_by_equal(f: NodeBuilder, indices: Value, depth: Value, values: Value) -> Result:
    """OneHot(i, depth, [0, 1]) → Cast(Equal(i, 0, 1, …)).

    Legal because this is the definition for the values 0 and 1 and a constant depth.
    """
    (count,), known = static_integers(depth, "depth is") or [0], constant_array(values)
    if known is None or known.tolist() != [0, 1]:
        return "its values are not 0 and 1"
    rank = rank_of(indices) + 1
    axis = f.attribute("axis", -1) % rank
    numbers = np.arange(count, dtype=np.int64).reshape([-1 if each == axis else 1 for each in range(rank)])
    places = indices if indices.dtype is DataType.INT64 else f.Cast(indices, to=DataType.INT64)
    return f.Cast(f.Equal(f.Unsqueeze(places, [axis]), numbers), to=f.dtype)


# ---------------------------------------------------------------- rows by their positions


@legalizes("GatherND(x, indices, batch_dims=batch)", until=11)
def gather_rows_without_batch(batch: int) -> Result:
    """GatherND<batch_dims> → refused unless batch_dims is 0.

    Legal because both opsets agree where there are no batch axes.
    """
    return "it has batch axes" if batch else None


@legalizes("GatherND(x, indices)", until=10)
def gather_row_positions(f: NodeBuilder, x: Value, indices: Value) -> Result:
    """GatherND(x, i) → Gather(rows of x, positions of the rows).

    Legal because the position of a row is the sum of its indices times their strides.
    """
    depth = indexed_axes(indices)
    return f.Gather(_rows(f, x, x, depth), _row_positions(f, x, indices, depth), axis=0)


@legalizes("ScatterND(x, indices, updates)", until=10)
def scatter_rows(f: NodeBuilder, x: Value, indices: Value, updates: Value) -> Result:
    """ScatterND(x, i, u) → Scatter<axis=0>(rows of x, positions of the rows, rows of u).

    Legal because both write whole rows. Scatter needs the position for each element of a row.
    """
    depth, inner = indexed_axes(indices), rank_of(x) - indexed_axes(indices)
    rows, written = _rows(f, x, x, depth), updates if rank_of(indices) == 2 else _rows(f, x, updates, depth)
    positions = f.Reshape(_row_positions(f, x, indices, depth), [-1] + [1] * inner)
    result = f.Scatter(rows, f.Expand(positions, f.Shape(written)) if inner else positions, written, axis=0)
    return result if depth == 1 else f.Reshape(result, f.Shape(x))


def indexed_axes(indices: Value) -> int:
    """Returns the number of axes that the tuples along the last axis index.

    Raises:
        DeclinedError: it is not known.
    """
    depth = sizes_of(indices)[-1]
    if not isinstance(depth, int):
        raise DeclinedError("the number of its indexed axes is not known")
    return depth


def _rows(f: NodeBuilder, x: Value, value: Value, depth: int) -> Value:
    """Returns a value with the rows of x, which has ``depth`` axes of rows, as a tensor with one axis of rows."""
    if depth == 1 and value is x:
        return x
    return f.Reshape(value, f.Concat([-1], *(size_of(f, x, axis) for axis in range(depth, rank_of(x))), axis=0))


def _row_positions(f: NodeBuilder, x: Value, indices: Value, depth: int) -> Value:
    """Returns the positions of rows among the rows of x, for index tuples along the last axis."""
    last = rank_of(indices) - 1
    indices = wrapped(f, indices, lambda: f.Concat(*(size_of(f, x, axis) for axis in range(depth)), axis=0))
    if depth > 1:
        strides = [f.Unsqueeze(stride(f, x, axis, depth), [0]) for axis in range(depth)]
        indices = f.Mul(indices, f.Concat(*strides, axis=0))
    return f.ReduceSum(indices, [last], keepdims=0)
