"""Legalization of reads and writes at positions that a tensor holds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.onnx_model import metadata
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import (
    axis_of,
    rank_of,
    scalar_size,
    size_of,
    sizes_of,
    static_integers,
    with_shape,
)
from fx_onnx.passes.legalization.loops import Iteration, loop
from fx_onnx.passes.legalization.scatters import gather_elements, stride
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import (
    constant_array,
    dims,
    producer_of,
)
from fx_onnx.passes.rules import DeclinedError, Result

__all__ = ["as_rows", "indexed_axes", "legalize_gather_elements", "legalize_scatter_nd", "wrapped"]

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


@legalizes("GatherElements(x, indices, axis=axis)", targets=("reference",))
def legalize_gather_elements(f: NodeBuilder, x: Value, indices: Value, axis: int) -> Result:
    """GatherElements(x, i, axis) → GatherND(x, c), where c has the coordinates of each element.

    Legal because ONNX defines both by the same coordinates. Short axes stay. The reference evaluator (measured with
    onnx 1.23.2) computes it by ``numpy.choose``, which takes few choices. From 32 or 64 elements on, by the version of
    NumPy, it reads one index of each row of a matrix, so that the result is wrong or there is none. It also refuses
    indices that are shorter than the tensor along another axis.
    """
    sizes, wanted = dims(x), dims(indices)
    if not sizes or wanted is None:
        return "the rank is unknown"
    axis, rank = axis % len(sizes), len(sizes)
    length = sizes[axis]
    if isinstance(length, int) and length <= _FEW and _without(sizes, axis) == _without(wanted, axis):
        return None
    shape = f.Shape(indices)
    coordinates = []
    for dim in range(rank):
        number = indices
        if dim != axis:
            every = f.Range(0, f.Squeeze(f.Shape(indices, start=dim, end=dim + 1), [0]), 1)
            beside = [other for other in range(rank) if other != dim]
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
    numbers = np.arange(count, dtype=np.int64).reshape([-1 if dim == axis else 1 for dim in range(rank)])
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


_OPERATORS = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}
_LAST = 2**63 - 1
_REDUCED = (DataType.FLOAT, DataType.FLOAT16, DataType.BFLOAT16)
"""What ScatterND reduces on CUDA, and bfloat16, which is cast to float32."""


@legalizes("ScatterElements(x, indices, updates)", "ScatterND(x, indices, updates)", until=17)
def merge_extrema(f: NodeBuilder, node: ir.Node, x: Value, indices: Value, updates: Value) -> Result:
    """ScatterElements<reduction=max or min>, ScatterND → TopK, a Loop, and ScatterND without reduction.

    Legal because the maximum is associative and commutative: see ``merge_updates``. The reductions add and mul stay,
    because opset 17 has them.
    """
    is_extremum = f.attribute("reduction", "none") in ("max", "min")
    return merge_updates.function(f, node, x, indices, updates) if is_extremum else None


@legalizes("ScatterElements(x, indices, updates)", "ScatterND(x, indices, updates)", until=15)
def merge_updates(f: NodeBuilder, node: ir.Node, x: Value, indices: Value, updates: Value) -> Result:
    """ScatterElements<reduction>(x, i, u), ScatterND → TopK sorts u by position, a Loop merges, ScatterND writes.

    Legal because each reduction is associative and commutative: sorting makes the updates of one position neighbours,
    and each round of the Loop merges them in pairs. Sums of floats are rounded in another order. A scatter without
    reduction stays.
    """
    if (reduction := f.attribute("reduction", "none")) == "none":
        return None
    if (repeated := _index_of_rows(f, x, indices, updates)) is not None:
        return _reduced_rows(f, x, repeated, updates, _OPERATORS[reduction])
    rows, positions, updates, inner = as_rows(f, node, x, indices, updates)
    result = _reduced(f, rows, positions, updates, _OPERATORS[reduction], inner)
    return result if rows is x else f.Reshape(result, f.Shape(x), allowzero=1)


@legalizes(
    "ScatterND(x, indices, updates, reduction=reduction)",
    targets=("onnxruntime-cuda",),
    where={"x": lambda x: x.dtype not in _REDUCED},
)
def legalize_scatter_nd(
    f: NodeBuilder, node: ir.Node, x: Value, indices: Value, updates: Value, reduction: str
) -> Result:
    """ScatterND<reduction>(x, i, u) → ScatterElements<axis=0, reduction>(rows of x, positions of the rows, rows of u).

    Legal because both reduce whole rows; ScatterElements needs the position for each element of a row. Applies to
    integers, booleans and float64, for which the ScatterND of ONNX Runtime's CUDA provider (measured with 1.31.1)
    fails when the model runs.
    """
    if reduction == "none":
        return None
    x, indices, updates = (with_shape(f, value) for value in (x, indices, updates))
    if indexed_axes(indices) == 1 and rank_of(indices) == 2:  # ScatterElements takes negative indices
        rows, positions, inner = x, f.Reshape(indices, [-1]), rank_of(x) - 1
    else:
        rows, positions, updates, inner = as_rows(f, node, x, indices, updates)
    if inner:
        positions = f.Expand(f.Reshape(positions, [-1] + [1] * inner), f.Shape(updates))
    result = f.ScatterElements(rows, positions, updates, axis=0, reduction=reduction)
    return result if rows is x else f.Reshape(result, f.Shape(x), allowzero=1)


def as_rows(f: NodeBuilder, node: ir.Node, x: Value, indices: Value, updates: Value) -> tuple[Value, Value, Value, int]:
    """Returns x and the updates with one axis of rows, the 1-D positions of the updates, and the axes of a row."""
    rank, tuples = rank_of(x), rank_of(indices)
    if node.op_type == "ScatterND":
        indexed = indexed_axes(indices)
        positions = _positions_of_tuples(f, x, indices, indexed)
    else:
        indexed, positions = rank, _positions_of_elements(f, x, indices)
    rows = _with_row_axis(f, x, [-1], x, indexed) if indexed > 1 else x
    if tuples != (2 if node.op_type == "ScatterND" else 1):
        updates = _with_row_axis(f, updates, f.Shape(positions), x, indexed)
    return rows, positions, updates, rank - indexed


def _index_of_rows(f: NodeBuilder, x: Value, indices: Value, updates: Value) -> Value | None:
    """Returns the 1-D index of ScatterElements that writes whole slices along its axis, else None.

    This is the form of ``x.scatter_add(0, i[:, None].expand(-1, n), u)``: an Expand along all other axes.
    """
    maker = producer_of(indices, "Expand")
    before, after, sizes = (dims(v) for v in (None if maker is None else maker.inputs[0], x, updates))
    if f.node.op_type != "ScatterElements" or before is None or after is None or sizes is None:
        return None
    rank = len(after)
    axis = f.attribute("axis", 0) % rank
    before = (1,) * (rank - len(before)) + tuple(before)
    is_whole = all(before[dim] == 1 and after[dim] == sizes[dim] for dim in range(rank) if dim != axis)
    if not is_whole or before[axis] != sizes[axis] or maker is None or rank == 1:
        return None
    return f.Reshape(maker.inputs[0], [-1])


def _reduced_rows(f: NodeBuilder, x: Value, index: Value, updates: Value, op_type: str) -> Value:
    """Returns the reduction of slices along the axis of the node, which becomes the first one."""
    rank = rank_of(x)
    axis = f.attribute("axis", 0) % rank
    order = [axis, *(other for other in range(rank) if other != axis)]
    rows, values = (f.Transpose(v, perm=order) for v in (x, updates)) if axis else (x, updates)
    size = f.Squeeze(f.Slice(f.Shape(x), [axis], [axis + 1], [0]), [0])
    result = _reduced(f, rows, f.Gather(f.Range(0, size, 1), index), values, op_type, rank - 1)
    return f.Transpose(result, perm=[order.index(dim) for dim in range(rank)])


def _with_row_axis(f: NodeBuilder, value: Value, count: Value | list[int], x: Value, indexed: int) -> Value:
    """Returns the value with one axis of ``count`` rows, then those of x that are not indexed."""
    if indexed == len(x.shape or ()):
        return f.Reshape(value, [-1])
    if isinstance(count, list):
        count = f.ReduceProd(f.Slice(f.Shape(x), [0], [indexed], [0]), keepdims=1)
    return f.Reshape(value, f.Concat(count, f.Slice(f.Shape(x), [indexed], [_LAST], [0]), axis=0), allowzero=1)


# ---------------------------------------------------------------- positions


def _positions_of_elements(f: NodeBuilder, x: Value, indices: Value) -> Value:
    """Returns the position of each update in the flattened x, as a 1-D INT64 tensor."""
    rank = rank_of(x)
    axis = f.attribute("axis", 0) % rank
    every = f.Reshape(f.Range(0, f.Size(x), 1), f.Shape(x), allowzero=1)
    others = [other for other in range(rank) if other != axis]
    if others:
        ends = f.Concat(*(f.Slice(f.Shape(indices), [a], [a + 1], [0]) for a in others), axis=0)
        every = f.Slice(every, [0] * len(others), ends, others)
    positions = f.GatherElements(every, indices, axis=axis)
    return positions if rank == 1 else f.Reshape(positions, [-1])


def _positions_of_tuples(f: NodeBuilder, x: Value, indices: Value, depth: int) -> Value:
    """Returns the position of each row of updates among the rows of x, whose first ``depth`` axes are indexed."""
    sizes, count = f.Shape(x), f.Size(x)
    if depth < rank_of(x):
        sizes = f.Slice(sizes, [0], [depth], [0])
        count = f.ReduceProd(sizes, keepdims=0)
    every = f.Reshape(f.Range(0, count, 1), sizes, allowzero=1)
    positions = f.GatherND(every, indices)
    return positions if len(indices.shape or ()) == 2 else f.Reshape(positions, [-1])


# ---------------------------------------------------------------- reduction


def _reduced(f: NodeBuilder, rows: Value, positions: Value, updates: Value, op_type: str, inner: int) -> Value:
    """Reduces rows[positions[n]] and updates[n] for all n; ``inner`` is the number of axes of a row."""
    count = size_of(f, positions, 0)
    # The key is unique, so that the sort is stable and floats are added in a fixed order.
    keys = f.Add(f.Mul(positions, count), f.Range(0, f.Squeeze(count, [0]), 1))
    ordered = f.emit("TopK", [keys, count], {"largest": 0, "sorted": 1, "axis": 0}, outputs=2)[1]
    at, values = f.Gather(positions, ordered), f.Gather(updates, ordered)
    condition = _has_duplicates(f, at)
    body = functools.partial(_one_round, op_type=op_type, inner=inner)
    at, values = loop(f, [at, values], body, condition=condition)
    merged = _merged(f, op_type, f.Gather(rows, at), values)
    return f.ScatterND(rows, f.Unsqueeze(at, [1]), merged)


def _merged(f: NodeBuilder, op_type: str, first: Value, second: Value) -> Value:
    """Returns the reduction of two values. Extrema of int64 are comparisons: see integer_extrema.py."""
    if op_type in ("Max", "Min") and first.dtype == DataType.INT64:
        is_first = f.Greater(first, second) if op_type == "Max" else f.Less(first, second)
        return f.Where(is_first, first, second)
    return f.emit(op_type, [first, second], {})[0]


def _has_duplicates(f: NodeBuilder, at: Value) -> Value:
    """Returns whether two neighbours are equal."""
    same = f.Equal(f.Slice(at, [0], [-1], [0]), f.Slice(at, [1], [_LAST], [0]))
    return f.Cast(f.ReduceSum(f.Cast(same, to=DataType.INT64), keepdims=0), to=DataType.BOOL)


def _one_round(f: NodeBuilder, _: Value, carried: Sequence[Value], op_type: str, inner: int) -> Iteration:
    """Merges the second of each run of equal positions into the first, the fourth into the third, and so on.

    Carries the sorted positions and the values that are left, half of each run. Ends without two equal positions.
    """
    at, values = carried
    count = f.Shape(at)
    places = f.Range(0, f.Squeeze(count, [0]), 1)
    is_first = f.Not(f.Equal(at, f.Slice(f.Concat(f.constant([-1]), at, axis=0), [0], [-1], [0])))
    starts = f.Cast(is_first, to=DataType.INT64)
    run = f.Sub(f.CumSum(starts, f.constant(0, DataType.INT64)), [1])
    rank = f.Sub(places, f.Gather(f.Compress(places, is_first, axis=0), run))
    left = f.Compress(places, f.Equal(f.Mod(rank, [2]), [0]), axis=0)
    right = f.Min(f.Add(left, [1]), f.Sub(count, [1]))
    kept = f.Gather(at, left)
    paired = f.And(f.Equal(kept, f.Gather(at, right)), f.Less(left, right))
    chosen = f.Unsqueeze(paired, list(range(1, inner + 1))) if inner else paired
    alone = f.Gather(values, left)
    both = _merged(f, op_type, alone, f.Gather(values, right))
    return Iteration([kept, f.Where(chosen, both, alone)], again=_has_duplicates(f, kept))
