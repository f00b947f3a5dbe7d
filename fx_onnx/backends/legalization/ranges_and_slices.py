"""Legalization of ranges, slices, sorts and distinct elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.onnx_model.dtypes import is_float
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import (
    axis_of,
    counted,
    known_rank,
    rank_of,
    scalar_size,
    size_of,
    sizes_of,
    static_integers,
)
from fx_onnx.passes.legalization.ranges_and_slices import is_nonnegative, name_sizes
from fx_onnx.passes.legalization.scatters import gather_elements
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import (
    constant_array,
    constant_integers,
    constant_number,
    dims,
    has_dtype,
    is_read,
)
from fx_onnx.passes.rules import Result

__all__ = ["legalize_ranges", "legalize_reversed_empty_axes", "legalize_slices_from_the_end", "legalize_unique"]

_UNBOUNDED = -(2**31)
"""Numbers up to here mean the begin of the axis."""

_END = 2**63 - 1


@legalizes("Range(start, limit, delta)", targets=("tract",), where={"start": has_dtype(DataType.INT32, DataType.INT64)})
def legalize_ranges(f: NodeBuilder, node: ir.Node, start: Value, limit: Value, delta: Value) -> Result:
    """Range(start, limit, delta) → start + delta * CumSum(Expand(1, [count]), exclusive=1), for integers.

    Legal because a range has count = max(⌈(limit - start) / delta⌉, 0) elements, and the exclusive sums of ones are
    0, 1, 2 and so on. tract (measured with 0.23.9) gives the result of a Range whose limit is a symbolic size an
    unknown length. It then computes a wrong shape, or fails, where the range meets a tensor that has the size: the
    causal mask of every decoder.
    """
    step = int(constant_number(delta) or 0)
    if not step:
        return "the step is not a constant"
    starts_at_zero = constant_number(start) == 0
    # A limit that is the size of the result is not negative, and a Max of it would hide the size from tract.
    is_size = step == 1 and dims(node.outputs[0]) is not None
    if starts_at_zero and step > 0 and (is_size or is_nonnegative(limit)):
        count = limit
    else:
        count = f.Max(f.Sub(limit, start) if step > 0 else f.Sub(start, limit), 0)
    if abs(step) != 1:  # a Div of integers that are not negative rounds down
        count = f.Div(f.Add(count, abs(step) - 1), abs(step))
    shape = f.Unsqueeze(count, [0])
    ones = f.Expand(f.constant(1), shape if shape.dtype == DataType.INT64 else f.Cast(shape, to=DataType.INT64))
    positions = f.CumSum(ones, f.constant(0), exclusive=1)
    scaled = positions if step == 1 else f.Mul(positions, delta)
    return scaled if starts_at_zero else f.Add(start, scaled)


@legalizes("Range(start, limit, delta)", until=10)
def range_of_places(f: NodeBuilder, start: Value, limit: Value, delta: Value) -> Result:
    """Range(start, limit, delta) → start + delta * NonZero(ones of the number of elements).

    Legal because element i is start + i * delta, and NonZero of ones returns 0, 1, 2, ….
    """
    first, step = (constant_array(x) for x in (start, delta))
    length = limit if first is not None and not first.any() else f.Sub(limit, start)
    if is_float(f.dtype):
        count = f.Cast(f.Ceil(f.Div(length, delta)), to=DataType.INT64)
    else:
        count = length if step is not None and step == 1 else _quotient_upwards(f, length, delta)
        count = count if f.dtype is DataType.INT64 else f.Cast(count, to=DataType.INT64)
    places = counted(f, f.Where(f.Less(count, 0), 0, count))
    numbers = places if f.dtype is DataType.INT64 else f.Cast(places, to=f.dtype)
    return f.Add(numbers if step is not None and step == 1 else f.Mul(numbers, delta), start)


def _quotient_upwards(f: NodeBuilder, a: Value, b: Value) -> Value:
    """Divides integers and rounds towards plus infinity; Div rounds towards zero."""
    quotient = f.Div(a, b)
    rest = f.Sub(a, f.Mul(quotient, b))
    return f.Add(quotient, f.Cast(f.Greater(f.Mul(rest, b), 0), to=f.dtype))


# ---------------------------------------------------------------- slices


@legalizes("Slice(x, starts, ends, axes | None, ...)", until=10)
def slice_axes_from_zero(f: NodeBuilder, node: ir.Node, x: Value, axes: Value | None) -> Result:
    """Slice(x, starts, ends, axes=-1) → Slice(x, starts, ends, axes=rank - 1).

    Legal because both name the same axis. Opset 10 has no negative axes.
    """
    places = static_integers(axes, "axes are")
    if places and min(places) < 0:
        places = [axis % rank_of(x) for axis in places]
        node.replace_input_with(3, f.constant(places))
    name_sizes(f, x, node.outputs[0], places)
    return None


@legalizes("Slice(x, starts, ends, axes | None, steps | None)", until=9)
def slice_by_gathers(
    f: NodeBuilder, x: Value, starts: Value, ends: Value, axes: Value | None, steps: Value | None
) -> Result:
    """Slice(x, starts, ends, axes, steps) → Slice<starts, ends, axes>(x), or Gather of each axis at start + i * step.

    Legal because both take the same elements. The attributes are for constant bounds and steps of 1.
    """
    first, last = (constant_array(value) for value in (starts, ends))
    count = next((len(known) for known in (static_integers(axes, "axes are"), first, last) if known is not None), None)
    if count is None:
        return "its axes are not known"
    each_axis = static_integers(axes, "axes are") or list(range(count))
    each_step = static_integers(steps, "steps are") or [1] * count
    if first is not None and last is not None and set(each_step) <= {1}:
        return f.Slice(x, [int(start) for start in first], [int(end) for end in last], each_axis)
    result = x
    for index, (axis, step) in enumerate(zip(each_axis, each_step, strict=True)):
        size = sizes_of(x)[axis]
        if isinstance(size, int) and first is not None and last is not None:
            places = f.constant(_known_places(int(first[index]), int(last[index]), size, step))
        else:
            places = _places(f, [starts, ends], index, scalar_size(f, x, axis), step)
        result = f.Gather(result, places, axis=axis)
    return result


def _known_places(start: int, end: int, size: int, step: int) -> list[int]:
    """Returns the indices of a slice; bounds are clamped as in ``_places``."""
    start, end = (bound + size if bound < 0 else bound for bound in (start, end))
    last, least = (size, 0) if step > 0 else (size - 1, -1)
    return list(range(min(max(start, 0), last), min(max(end, least), last), step))


def _places(f: NodeBuilder, bounds: list[Value], index: int, size: Value, step: int) -> Value:
    """Returns the indices of a slice of one axis, whose bounds are at ``place``.

    ONNX clamps a bound: it is at most the size or the last index, and at least 0, or -1 for the end of a negative step.
    """
    clamped = []
    for values, least in zip(bounds, (0, 0 if step > 0 else -1), strict=True):
        bound = f.Gather(values, f.constant(index, DataType.INT64), axis=0)
        bound = bound if values.dtype is DataType.INT64 else f.Cast(bound, to=DataType.INT64)
        bound = f.Where(f.Less(bound, 0), f.Add(bound, size), bound)
        last = size if step > 0 else f.Sub(size, 1)
        clamped.append(_at_least(f, f.Where(f.Greater(bound, last), last, bound), least))
    start, end = clamped
    reach = f.Sub(end, start) if step > 0 else f.Sub(start, end)
    places = counted(f, _at_least(f, f.Div(f.Add(reach, abs(step) - 1), abs(step)), 0))
    return f.Add(places if step == 1 else f.Mul(places, step), start)


def _at_least(f: NodeBuilder, value: Value, least: int) -> Value:
    return f.Where(f.Less(value, least), least, value)


@legalizes("Slice(x, starts, ends, *rest)", since=10, targets=("mnn", "tract"))
def legalize_slices_from_the_end(
    f: NodeBuilder, x: Value, starts: Value, ends: Value, rest: Sequence[Value | None]
) -> Result:
    """Slice(x, -k, end) → Slice(x, Max(size - k, 0), end), and the same for the end, where the size is dynamic.

    Legal for steps of at least 1, because ONNX clips at the begin of the axis. A k of 1 stays: it fails for empty
    tensors only. tract and MNN add the size once and do not clip: for ``x[-8:]`` of five elements, which is all of x,
    tract (measured with 0.23.9) fails with an invalid range, and MNN (3.6.1) returns three elements.
    """
    sizes, bounds = dims(x), [constant_integers(starts), constant_integers(ends)]
    axes, steps = (*rest, None, None)[:2]
    if sizes is None:
        return None
    places = list(range(len(bounds[0] or bounds[1] or ()))) if axes is None else constant_integers(axes)
    if places is None or (steps is not None and min(constant_integers(steps) or [0]) < 1):
        return "the axes are computed, or a step is negative or computed"
    places = [axis % len(sizes) for axis in places]
    first, last = (None if given is None else _clipped(f, x, sizes, places, given) for given in bounds)
    return f.Slice(x, first or starts, last or ends, *rest) if first or last else None


@legalizes("Slice(x, integers.starts, integers.ends, integers.axes, integers.steps)", since=10, targets=("tensorrt",))
def legalize_reversed_empty_axes(
    f: NodeBuilder, x: Value, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int], steps: Sequence[int]
) -> Result:
    """Slice(x) with a negative step along an axis without elements → x, or the slice of the other axes.

    Legal because such an axis stays empty. TensorRT for RTX (1.7.1) starts at the element before the first one there.
    """
    sizes = dims(x)
    parts = list(zip(starts, ends, axes, steps, strict=True))
    kept = [part for part in parts if sizes is None or part[3] > 0 or sizes[part[2]] != 0]
    if len(kept) == len(parts):
        return None
    return f.Slice(x, *map(list, zip(*kept, strict=True))) if kept else f.Identity(x)


def _clipped(
    f: NodeBuilder, x: Value, sizes: tuple[int | str, ...], axes: list[int], bounds: list[int]
) -> Value | list[int] | None:
    """Returns the starts or ends, counted from the begin; None if none of them can be before the begin."""
    parts: list[Value | list[int]] = []
    changed = False
    for axis, bound in zip(axes, bounds, strict=True):
        size = sizes[axis]
        is_before = _UNBOUNDED < bound < -1 and (isinstance(size, str) or size + bound < 0)
        changed |= is_before
        if is_before and isinstance(size, str):
            parts.append(f.Max(f.Add(f.Shape(x, start=axis, end=axis + 1), [bound]), [0]))
        else:
            parts.append([0 if is_before else bound])
    if not changed:
        return None
    return parts[0] if len(parts) == 1 else f.Concat(*parts, axis=0)


# ---------------------------------------------------------------- sorts and distinct elements


@legalizes("TopK(x, k)", until=10)
def top_k_of_largest_floats(f: NodeBuilder, x: Value, k: Value) -> Result:
    """TopK<largest=0>(x, k) → -TopK(-x, k); TopK of INT64 → TopK of the low and of the high 32 bits.

    Legal because negation reverses the order of floats, and TopK keeps the order of equal elements, so that a sort by
    the low bits and then by the high bits is a sort.
    """
    known_rank(f)
    axis, largest = axis_of(f, x, -1), f.attribute("largest", 1)
    if not is_float(f.dtype):
        return _top_k_of_integers(f, x, k, axis, bool(largest))
    values, indices = f.emit("TopK", [x if largest else f.Neg(x), k], {"axis": axis}, outputs=2)
    return values if largest else f.Neg(values), indices


def _top_k_of_integers(f: NodeBuilder, x: Value, k: Value, axis: int, largest: bool) -> Result:
    wide = x if x.dtype is DataType.INT64 else f.Cast(x, to=DataType.INT64)
    high = f.Div(wide, 1 << 32)
    low = f.Sub(wide, f.Mul(high, 1 << 32))
    low, high = (f.Cast(part if largest else f.Neg(part), to=DataType.DOUBLE) for part in (low, high))
    by_low = f.emit("TopK", [low, size_of(f, x, axis)], {"axis": axis}, outputs=2)[1]
    by_high = f.emit("TopK", [gather_elements(f, high, by_low, axis), k], {"axis": axis}, outputs=2)[1]
    indices = gather_elements(f, by_low, by_high, axis)
    return gather_elements(f, x, indices, axis), indices


@legalizes("TopK(x, k)", until=9)
def top_k_axis_from_zero(f: NodeBuilder, x: Value, k: Value) -> Result:
    """TopK<axis=-1>(x, k) → TopK<k, axis=rank - 1>(x).

    Legal because both mean the same for a constant k.
    """
    (count,) = static_integers(k, "k is") or [0]
    return f.emit("TopK", [x], {"axis": axis_of(f, x, -1), "k": count}, outputs=2)


@legalizes("Unique(x, sorted=is_sorted)", targets=("directml", "onnxruntime-cuda", "tensorrt"))
def legalize_unique(f: NodeBuilder, node: ir.Node, x: Value, is_sorted: int) -> Result:
    """Unique(x) → Gather(s, p), where s is the sorted x and p are the positions at which a run of equal numbers begins.

    Legal because equal numbers are neighbours in s. The numbers of the runs, in the order of x, are the inverse
    indices, and the lengths of the runs are the counts. Each NaN is a run, as in torch. Applies to a vector, or without
    ``axis``. DirectML, TensorRT and ONNX Runtime's CUDA provider have no kernel for Unique.
    """
    if x.dtype is None or x.dtype == DataType.STRING:
        return "the dtype is unknown or not a number"
    is_vector = x.shape is not None and len(x.shape) == 1
    if not is_vector and "axis" in node.attributes:
        return "it compares slices along an axis"
    if not is_sorted:
        return "the result has the order of the first occurrences"
    flat = x if is_vector else f.Reshape(x, [-1])
    if x.dtype == DataType.BOOL:  # TopK takes numbers
        flat = f.Cast(flat, to=DataType.INT32)
    length = f.Shape(flat)
    numbers, order = f.emit("TopK", [flat, length], {"axis": 0, "largest": 0}, outputs=2)
    differs = f.Not(f.Equal(f.Slice(numbers, [1], [_END], [0]), f.Slice(numbers, [0], [-1], [0])))
    # An empty vector has no run, so the first element of this concatenation is cut off.
    begins = f.Slice(f.Concat(np.array([True]), differs, axis=0), [0], length, [0])
    positions = f.Squeeze(f.NonZero(begins), [0])
    results: list[Value | None] = [None] * len(node.outputs)
    for index in [index for index, output in enumerate(node.outputs) if is_read(output)]:
        if index == 0:
            distinct = f.Gather(numbers, positions)
            results[0] = f.Cast(distinct, to=DataType.BOOL) if x.dtype == DataType.BOOL else distinct
        elif index == 1:
            results[1] = f.Gather(order, positions)
        elif index == 2:
            runs = f.Sub(f.CumSum(f.Cast(begins, to=DataType.INT64), np.array(0)), 1)
            results[2] = f.Gather(runs, f.emit("TopK", [order, length], {"axis": 0, "largest": 0}, outputs=2)[1])
        else:
            results[3] = f.Sub(f.Concat(f.Slice(positions, [1], [_END], [0]), length, axis=0), positions)
    return results
