"""Scatters with a reduction, as sorting, segmented reductions and a scatter without reduction."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.element_positions import indexed_axes
from fx_onnx.passes.legalization.forms import rank_of
from fx_onnx.passes.legalization.loops import Iteration, loop
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import dims, producer_of
from fx_onnx.passes.rules import Result

__all__ = list[str]()

_OPERATORS = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}
_LAST = 2**63 - 1


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
    rank, tuples = rank_of(x), rank_of(indices)
    if (repeated := _index_of_rows(f, x, indices, updates)) is not None:
        return _reduced_rows(f, x, repeated, updates, _OPERATORS[reduction])
    if node.op_type == "ScatterND":
        indexed = indexed_axes(indices)
        positions = _positions_of_tuples(f, x, indices, indexed)
    else:
        indexed, positions = rank, _positions_of_elements(f, x, indices)
    rows = _with_row_axis(f, x, [-1], x, indexed) if indexed > 1 else x
    if tuples != (2 if node.op_type == "ScatterND" else 1):
        updates = _with_row_axis(f, updates, f.Shape(positions), x, indexed)
    result = _reduced(f, rows, positions, updates, _OPERATORS[reduction], rank - indexed)
    return result if rows is x else f.Reshape(result, f.Shape(x), allowzero=1)


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
    is_whole = all(before[each] == 1 and after[each] == sizes[each] for each in range(rank) if each != axis)
    if not is_whole or before[axis] != sizes[axis] or maker is None or rank == 1:
        return None
    return f.Reshape(maker.inputs[0], [-1], sizes=(before[axis],))


def _reduced_rows(f: NodeBuilder, x: Value, index: Value, updates: Value, op_type: str) -> Value:
    """Returns the reduction of slices along the axis of the node, which becomes the first one."""
    rank = rank_of(x)
    axis = f.attribute("axis", 0) % rank
    order = [axis, *(each for each in range(rank) if each != axis)]
    rows, values = (f.Transpose(v, perm=order) for v in (x, updates)) if axis else (x, updates)
    size = f.Squeeze(f.Slice(f.Shape(x), [axis], [axis + 1], [0]), [0])
    result = _reduced(f, rows, f.Gather(f.Range(0, size, 1), index), values, op_type, rank - 1)
    return f.Transpose(result, perm=[order.index(each) for each in range(rank)])


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
    every = f.Reshape(f.Range(0, f.Size(x), 1), f.Shape(x), allowzero=1, sizes=dims(x))
    others = [each for each in range(rank) if each != axis]
    if others:
        ends = f.Concat(*(f.Slice(f.Shape(indices), [a], [a + 1], [0]) for a in others), axis=0)
        every = f.Slice(every, [0] * len(others), ends, others)
    found = f.GatherElements(every, indices, axis=axis, sizes=dims(indices))
    return found if rank == 1 else f.Reshape(found, [-1], sizes=(_count(dims(indices)),))


def _positions_of_tuples(f: NodeBuilder, x: Value, indices: Value, depth: int) -> Value:
    """Returns the position of each row of updates among the rows of x, whose first ``depth`` axes are indexed."""
    sizes = f.Slice(f.Shape(x), [0], [depth], [0])
    every = f.Reshape(f.Range(0, f.ReduceProd(sizes, keepdims=0), 1), sizes, allowzero=1)
    known = dims(indices)
    places = None if known is None else known[:-1]
    found = f.GatherND(every, indices, sizes=places)
    return found if len(indices.shape or ()) == 2 else f.Reshape(found, [-1], sizes=(_count(places),))


def _count(sizes: tuple[int | str | None, ...] | None) -> int | None:
    """Returns the number of elements of a static shape, or None."""
    known = [size for size in sizes or () if isinstance(size, int)]
    return math.prod(known) if sizes is not None and len(known) == len(sizes) else None


# ---------------------------------------------------------------- reduction


def _reduced(f: NodeBuilder, rows: Value, positions: Value, updates: Value, op_type: str, inner: int) -> Value:
    """Reduces rows[positions[n]] and updates[n] for all n; ``inner`` is the number of axes of a row."""
    size = _count(dims(positions))
    count = f.Shape(positions) if size is None else f.constant([size])
    # The key is unique, so that the sort is stable and floats are added in a fixed order.
    keys = f.Add(f.Mul(positions, count), f.Range(0, f.Squeeze(count, [0]), 1))
    keys.shape = ir.Shape([size])
    ordered = f.emit("TopK", [keys, count], {"largest": 0, "sorted": 1, "axis": 0}, outputs=2)[1]
    at, values = f.Gather(positions, ordered), f.Gather(updates, ordered)
    condition = _has_duplicates(f, at)
    body = functools.partial(_one_round, op_type=op_type, inner=inner)
    at, values = loop(f, [at, values], body, condition=condition)
    at.shape = ir.Shape([None])
    merged = _merged(f, op_type, f.Gather(rows, at), values)
    places = f.Unsqueeze(at, [1])
    places.shape = ir.Shape([None, 1])
    return f.ScatterND(rows, places, merged)


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
    starts.shape = ir.Shape([None])
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
