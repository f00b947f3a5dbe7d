"""Opset 11 → 10."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.core.dtypes import is_float
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.opsets._step_10_pads import name_sizes, pad
from fx_onnx.passes.legalization.opsets.forms import (
    axis_of,
    counted,
    gather_elements,
    give_rank,
    rank_of,
    round_half_to_even,
    scalar_size,
    sizes_of,
    stride,
    wrapped,
)
from fx_onnx.passes.legalization.opsets.loops import Iteration, loop
from fx_onnx.passes.legalization.opsets.resize_by_gathers import resize
from fx_onnx.passes.legalization.opsets.step import (
    OpsetStep,
    UnsupportedNodeError,
    size_of,
    static_integers,
)
from fx_onnx.passes.matchers import constant_array

__all__ = ["STEP_10"]

# ---------------------------------------------------------------- negative axes and indices


def axes_from_zero(f: NodeBuilder) -> None:
    """op<axis=-1>(x) → op<axis=rank - 1>(x).

    Legal because both name the same axis. Opset 10 has no negative axes.
    """
    node = f.node
    for name in ("axis", "axes"):
        given = f.attribute(name)
        axes = [given] if isinstance(given, int) else list(given or ())
        if any(axis < 0 for axis in axes):
            rank = rank_of(node.outputs[0] if node.op_type == "Unsqueeze" else node.inputs[0])
            fitted = [axis % rank for axis in axes]
            f.editor.replace(
                node,
                node.op_type,
                list(node.inputs),
                {**node.attributes, name: fitted[0] if isinstance(given, int) else fitted},
            )


def slice_axes(f: NodeBuilder) -> None:
    """Slice(x, starts, ends, axes=-1) → Slice(x, starts, ends, axes=rank - 1).

    Legal because both name the same axis. Opset 10 has no negative axes.
    """
    node = f.node
    axes = static_integers(f, 3, "axes are")
    if axes and min(axes) < 0:
        rank = rank_of(node.inputs[0])
        axes = [axis % rank for axis in axes]
        node.replace_input_with(3, f.constant(axes))
    if node.inputs[0] is not None:
        name_sizes(f, node.inputs[0], node.outputs[0], axes)


def gather(f: NodeBuilder) -> None:
    """Gather<axis>(x, i) → Gather<axis>(x, Where(i < 0, i + size, i)).

    Legal because a negative index counts from the end of the axis. Opset 10 has no negative indices and axes.
    """
    node = f.node
    x, indices = node.inputs
    if x is None or indices is None:
        return
    axis = axis_of(f, x)
    f.editor.replace(node, "Gather", [x, wrapped(f, indices, lambda: scalar_size(f, x, axis))], {"axis": axis})


def one_hot(f: NodeBuilder) -> None:
    """OneHot(i, depth, values) → OneHot(Where(i < 0, i + depth, i), depth, values).

    Legal because a negative index counts from ``depth`` down. Opset 10 has no negative indices.
    """
    node = f.node
    indices, depth, values = node.inputs
    if indices is None or depth is None:
        return
    wide = functools.partial(f.Cast, depth, to=int(DataType.INT64))
    f.editor.replace(node, "OneHot", [wrapped(f, indices, wide), depth, values])


# ---------------------------------------------------------------- operators of elements and positions


def gather_elements_rule(f: NodeBuilder) -> None:
    """GatherElements<axis>(x, i) → Gather(Reshape(x, [-1]), positions of the elements).

    Legal because the position of an element of the flattened x is the sum of its indices times their strides.
    """
    x, indices = f.node.inputs
    if x is None or indices is None:
        return
    axis = axis_of(f, x)
    found = gather_elements(f, x, wrapped(f, indices, lambda: scalar_size(f, x, axis)), axis)
    f.editor.replace(f.node, "Identity", [found], {})


def gather_nd(f: NodeBuilder) -> None:
    """GatherND(x, i) → Gather(rows of x, positions of the rows).

    Legal because the position of a row is the sum of its indices times their strides.
    """
    x, indices = f.node.inputs
    if x is None or indices is None:
        return
    depth = _depth(indices)
    rows = _rows(f, x, x, depth)
    f.editor.replace(f.node, "Gather", [rows, _row_positions(f, x, indices, depth)], {"axis": 0})


def scatter_elements(f: NodeBuilder) -> None:
    """ScatterElements<axis>(x, i, u) → Scatter<axis>(x, i, u).

    Legal because opset 10 names the operator Scatter. Negative indices and axes are counted from the end.
    """
    x, indices, updates = f.node.inputs
    if x is None or indices is None:
        return
    axis = axis_of(f, x)
    f.editor.replace(
        f.node, "Scatter", [x, wrapped(f, indices, lambda: scalar_size(f, x, axis)), updates], {"axis": axis}
    )


def scatter_nd(f: NodeBuilder) -> None:
    """ScatterND(x, i, u) → Scatter<axis=0>(rows of x, positions of the rows, rows of u).

    Legal because both write whole rows. Scatter needs the position for each element of a row.
    """
    node = f.node
    x, indices, updates = node.inputs
    if x is None or indices is None or updates is None:
        return
    depth, inner = _depth(indices), rank_of(x) - _depth(indices)
    rows, written = _rows(f, x, x, depth), updates
    if rank_of(indices) != 2:
        written = _rows(f, x, updates, depth)
    positions = f.Reshape(_row_positions(f, x, indices, depth), [-1] + [1] * inner)
    result = f.Scatter(rows, f.Expand(positions, f.Shape(written)) if inner else positions, written, axis=0)
    if depth == 1:
        f.editor.replace(node, "Identity", [result], {})
    else:
        f.editor.replace(node, "Reshape", [result, f.Shape(x)], {})


def _depth(indices: Value) -> int:
    depth = sizes_of(indices)[-1]
    if not isinstance(depth, int):
        raise UnsupportedNodeError("the number of its indexed axes is not known")
    return depth


def _rows(f: NodeBuilder, x: Value, value: Value, depth: int) -> Value:
    """Returns a value with the rows of x, which has ``depth`` axes of rows, as a tensor with one axis of rows."""
    if depth == 1 and value is x:
        return x
    inner = [size_of(f, x, axis) for axis in range(depth, rank_of(x))]
    result: Value = f.Reshape(value, f.Concat(f.constant([-1]), *inner, axis=0))
    return result


def _row_positions(f: NodeBuilder, x: Value, indices: Value, depth: int) -> Value:
    """Returns the positions of rows among the rows of x, for index tuples along the last axis."""
    last = rank_of(indices) - 1

    def sizes() -> Value:
        found: Value = f.Concat(*(size_of(f, x, axis) for axis in range(depth)), axis=0)
        return found

    indices = wrapped(f, indices, sizes)
    if depth > 1:
        strides = f.Concat(*(f.Unsqueeze(stride(f, x, axis, depth), axes=[0]) for axis in range(depth)), axis=0)
        indices = f.Mul(indices, strides)
    positions: Value = f.ReduceSum(indices, axes=[last], keepdims=0)
    return positions


def cum_sum(f: NodeBuilder) -> None:
    """CumSum(x, axis) → Loop that adds one slice of x in each iteration.

    Legal because this is the definition of CumSum.
    """
    node = f.node
    x = node.inputs[0]
    give_rank(f)
    (axis,) = static_integers(f, 1, "axis is") or [0]
    rank = rank_of(x)
    if x is None or not rank:
        raise UnsupportedNodeError("its input is a scalar")
    axis %= rank
    is_reverse, is_exclusive = f.attribute("reverse", 0), f.attribute("exclusive", 0)
    order = [axis, *(each for each in range(rank) if each != axis)]
    slices = f.Transpose(x, perm=order) if axis else x
    sizes = sizes_of(x)
    row = tuple(sizes[each] for each in order[1:])
    last = f.Sub(scalar_size(f, x, axis), f.constant(1, DataType.INT64), sizes=())
    zero = f.constant(np.zeros((), f.dtype.numpy()))
    shape = f.Concat(*(size_of(f, x, each) for each in order[1:]), axis=0) if rank > 1 else None
    start = zero if shape is None else f.Expand(zero, shape)

    def add_slice(b: NodeBuilder, number: Value, carried: Sequence[Value]) -> Iteration:
        place = b.Sub(last, number, sizes=()) if is_reverse else number
        total = b.Add(*carried, b.Gather(slices, place, axis=0))
        total.shape = carried[0].shape = ir.Shape(row)
        return Iteration([total], [carried[0] if is_exclusive else total])

    sums = loop(f, [start], add_slice, count=scalar_size(f, x, axis))[1]
    if is_reverse:
        sums = f.Gather(sums, f.Sub(last, counted(f, scalar_size(f, x, axis))), axis=0)
    back = [order.index(each) for each in range(rank)]
    f.editor.replace(node, "Transpose", [sums], {"perm": back})


def range_of_numbers(f: NodeBuilder) -> None:
    """Range(start, limit, delta) → start + delta * NonZero(ones of the number of elements).

    Legal because element i is start + i * delta, and NonZero of ones returns 0, 1, 2, ….
    """
    node = f.node
    start, limit, delta = (x for x in node.inputs if x is not None)
    first, step = (constant_array(x) for x in (start, delta))
    length = limit if first is not None and not first.any() else f.Sub(limit, start, sizes=())
    if is_float(f.dtype):
        count = f.Cast(f.Ceil(f.Div(length, delta, sizes=()), sizes=()), to=int(DataType.INT64), sizes=())
    else:
        count = length if step is not None and step == 1 else _quotient_upwards(f, length, delta)
        count = count if f.dtype is DataType.INT64 else f.Cast(count, to=int(DataType.INT64), sizes=())
    zero = f.constant(0, DataType.INT64)
    places = counted(f, f.Where(f.Less(count, zero, sizes=()), zero, count, sizes=()))
    numbers = places if f.dtype is DataType.INT64 else f.Cast(places, to=int(f.dtype))
    if step is None or step != 1:
        numbers = f.Mul(numbers, delta)
    f.editor.replace(node, "Add", [numbers, start], {})


def _quotient_upwards(f: NodeBuilder, a: Value, b: Value) -> Value:
    """Divides integers and rounds towards plus infinity; Div rounds towards zero."""
    quotient = f.Div(a, b, sizes=())
    rest = f.Sub(a, f.Mul(quotient, b, sizes=()), sizes=())
    is_more = f.Greater(f.Mul(rest, b, sizes=()), f.constant(0), sizes=())
    result: Value = f.Add(quotient, f.Cast(is_more, to=int(f.dtype), sizes=()), sizes=())
    return result


def top_k(f: NodeBuilder) -> None:
    """TopK<largest=0>(x, k) → -TopK(-x, k); TopK of INT64 → TopK of the low and of the high 32 bits.

    Legal because negation reverses the order of floats, and TopK keeps the order of equal elements, so that a sort by
    the low bits and then by the high bits is a sort.
    """
    node = f.node
    x, k = node.inputs
    if x is None or k is None:
        return
    give_rank(f)
    axis, largest = axis_of(f, x, -1), f.attribute("largest", 1)
    if not is_float(f.dtype):
        _top_k_of_integers(f, x, k, axis, bool(largest))
    elif largest:
        f.editor.replace(node, "TopK", [x, k], {"axis": axis})
    else:
        values, indices = f.emit("TopK", [f.Neg(x), k], {"axis": axis}, outputs=2)
        _replace_outputs(f, f.Neg(values), indices)


def _top_k_of_integers(f: NodeBuilder, x: Value, k: Value, axis: int, largest: bool) -> None:
    wide = x if x.dtype is DataType.INT64 else f.Cast(x, to=int(DataType.INT64))
    high = f.Div(wide, f.constant(1 << 32, DataType.INT64))
    low = f.Sub(wide, f.Mul(high, f.constant(1 << 32, DataType.INT64)))
    low, high = (f.Cast(part if largest else f.Neg(part), to=int(DataType.DOUBLE)) for part in (low, high))
    by_low = f.emit("TopK", [low, size_of(f, x, axis)], {"axis": axis}, outputs=2)[1]
    high.shape = by_low.shape = x.shape
    by_high = f.emit("TopK", [gather_elements(f, high, by_low, axis), k], {"axis": axis}, outputs=2)[1]
    by_high.shape = f.node.outputs[0].shape or ir.Shape([None] * rank_of(x))
    indices = gather_elements(f, by_low, by_high, axis)
    _replace_outputs(f, gather_elements(f, x, indices, axis), indices)


def _replace_outputs(f: NodeBuilder, *values: Value) -> None:
    for output, value in zip(f.node.outputs, values, strict=False):
        f.editor.replace_result(output, value)
    f.editor.remove_if_unused(f.node)


# ---------------------------------------------------------------- elementwise


def clip(f: NodeBuilder) -> None:
    """Clip(x, low, high) → Clip<min, max>(x) for two constants, else Min(Max(x, low), high).

    Legal because this is the definition of Clip. An absent bound would be the largest finite number in opset 10.
    """
    node = f.node
    x, *bounds = (*node.inputs, None, None)[:3]
    low, high = (None if bound is None else constant_array(bound) for bound in bounds)
    if low is not None and high is not None and f.dtype is DataType.FLOAT:
        f.editor.replace(node, "Clip", [x], {"min": float(low.reshape(())), "max": float(high.reshape(()))})
        return
    result = x
    for bound, name in zip(bounds, ("Max", "Min"), strict=True):
        if bound is not None:
            result = f.emit(name, [result, bound], {})[0]
    f.editor.replace(node, "Identity", [result], {})


def equal(f: NodeBuilder) -> None:
    """Equal(a, b) of floats → Not(Less(a, b) or Greater(a, b) or a is NaN or b is NaN).

    Legal because exactly one of four holds for two floats: less, equal, greater, or one is NaN.
    """
    node = f.node
    a, b = node.inputs
    if a is None or b is None or a.dtype is None or not is_float(a.dtype):
        return
    differs = f.Or(f.Less(a, b), f.Greater(a, b))
    for value in dict.fromkeys((a, b)):
        known = constant_array(value)
        if known is None or np.isnan(known).any():
            differs = f.Or(differs, f.IsNaN(value))
    f.editor.replace(node, "Not", [differs], {})


def round_(f: NodeBuilder) -> None:
    """Round(x) → Floor(x), plus 1 where the rest is more than a half, or a half above an odd number.

    Legal because this is the definition; the rest x - Floor(x) is exact.
    """
    (x,) = f.node.inputs
    if x is not None:
        f.editor.replace(f.node, "Identity", [round_half_to_even(f, x)], {})


# ---------------------------------------------------------------- shapes and others


def depth_to_space(f: NodeBuilder) -> None:
    """DepthToSpace<mode=CRD>(x) → Reshape, Transpose, Reshape.

    Legal because this is the definition. Opset 10 has the mode DCR only.
    """
    node = f.node
    x = node.inputs[0]
    block = f.attribute("blocksize")
    if f.attribute("mode", "DCR") == "DCR" or x is None:
        kept = {name: attr for name, attr in node.attributes.items() if name != "mode"}
        f.editor.replace(node, "DepthToSpace", [x], kept)
        return
    batch, channels, height, width = (size_of(f, x, axis) for axis in range(4))
    channels = f.Div(channels, [block * block], sizes=(1,))
    parts = f.Reshape(x, f.Concat(batch, channels, f.constant([block, block]), height, width, axis=0, sizes=(6,)))
    mixed = f.Transpose(parts, perm=[0, 1, 4, 2, 5, 3])
    height, width = (f.Mul(size, [block], sizes=(1,)) for size in (height, width))
    f.editor.replace(node, "Reshape", [mixed, f.Concat(batch, channels, height, width, axis=0, sizes=(4,))], {})


def gemm(f: NodeBuilder) -> None:
    """Gemm(a, b) → Gemm(a, b, 0).

    Legal because adding 0 changes no number. Opset 10 requires the third input.
    """
    node = f.node
    if len(node.inputs) < 3 or node.inputs[2] is None:
        f.editor.replace(node, "Gemm", [*node.inputs[:2], f.constant(np.zeros(1, f.dtype.numpy()))])


def loop_with_state(f: NodeBuilder) -> None:
    """Loop(n, c) without a carried value → Loop(n, c, 0).

    Legal because nothing reads the value. Opset 10 requires one.
    """
    node = f.node
    if len(node.inputs) > 2:
        return
    body = node.attributes["body"].as_graph()
    name = f.editor.unique_name(f"{node.name or node.outputs[0].name}.unused")
    before = ir.Value(name=f"{name}.before", type=ir.TensorType(DataType.INT64), shape=ir.Shape(()))
    kept = ir.node("Identity", [before], name=name, metadata_props=dict(node.metadata_props))
    kept.outputs[0].name, kept.outputs[0].type, kept.outputs[0].shape = name, before.type, before.shape
    body.append(kept)
    body.inputs.append(before)
    body.outputs.insert(1, kept.outputs[0])
    inputs = [*node.inputs, None, None][:2]
    results = f.emit("Loop", [*inputs, f.constant(0, DataType.INT64)], node.attributes, outputs=len(node.outputs) + 1)
    results[0].type, results[0].shape = before.type, before.shape
    for output, result in zip(list(node.outputs), results[1:], strict=True):
        f.editor.replace_result(output, result)
    node.attributes.pop("body")
    f.editor.remove_if_unused(node)


_AXIS = """
    ArgMax ArgMin Compress Concat Flatten Hardmax LogSoftmax ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax
    ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Softmax Split Squeeze Unsqueeze
"""

STEP_10 = OpsetStep(
    10,
    rewrites={
        **dict.fromkeys(_AXIS.split(), axes_from_zero),
        "Clip": clip,
        "CumSum": cum_sum,
        "DepthToSpace": depth_to_space,
        "Equal": equal,
        "Gather": gather,
        "GatherElements": gather_elements_rule,
        "GatherND": gather_nd,
        "Gemm": gemm,
        "Loop": loop_with_state,
        "OneHot": one_hot,
        "Pad": pad,
        "Range": range_of_numbers,
        "Resize": resize,
        "Round": round_,
        "ScatterElements": scatter_elements,
        "ScatterND": scatter_nd,
        "Slice": slice_axes,
        "TopK": top_k,
    },
)
