"""Legalization of operators that make or read indices: ranges, gathers, slices and distinct elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import (
    constant_array,
    constant_integers,
    constant_number,
    dims,
    has_dtype,
    is_read,
    producer_of,
)
from fx_onnx.passes.rules import Result, rule

__all__ = [
    "is_nonnegative",
    "legalize_gather_elements",
    "legalize_range_indices",
    "legalize_ranges",
    "legalize_slices_from_the_end",
    "legalize_unique",
]

# Operators whose results are not negative if the operands at these positions are not negative.
_KEEPS_NONNEGATIVE: dict[str, tuple[int, ...]] = {
    "Add": (0, 1), "Mul": (0, 1), "Div": (0, 1), "Cast": (0,), "Identity": (0,),
    "Squeeze": (0,), "Unsqueeze": (0,), "Reshape": (0,), "Gather": (0,), "Slice": (0,),
}  # fmt: skip
_DEPTH = 16  # the longest chain of operands that the proof follows; expressions over sizes are shorter
_FEW = 31
"""The choices that numpy.choose takes in every version."""
_UNBOUNDED = -(2**31)
"""Numbers up to here mean the begin of the axis."""
_END = 2**63 - 1


# ---------------------------------------------------------------- ranges


@rule("Range(start, limit, delta)")
def legalize_range_indices(f: NodeBuilder, node: ir.Node, start: Value, limit: Value, delta: Value) -> Result:
    """Gather(x, Range(start, limit, delta)) → Gather(x, Sub(start, Range(0, start - limit, -delta))).

    Legal because the two ranges are equal: both have ⌈(limit - start) / delta⌉ elements. Applies where a bound of the
    range may be negative and the Gather is its only consumer: ONNX Runtime's GatherToSliceFusion replaces
    ``Gather(x, Range(start, limit, delta))`` by ``Slice(x, start, limit, delta)``, and Slice counts a negative bound
    from the end of the axis. ``x[arange(n - 1, -1, -1)]`` then gives an empty tensor. Measured with ONNX Runtime 1.31.1
    at opsets 15 to 24.
    """
    uses = list(node.outputs[0].uses())
    if not any(use.node.op_type == "Gather" and not use.node.domain and use.idx == 1 for use in uses):
        return None
    if len(uses) > 1:
        return "it has several consumers, so ONNX Runtime does not fuse it"
    if is_nonnegative(start) and is_nonnegative(limit):
        return "neither bound can be negative"
    return f.Sub(start, f.Range(0, f.Sub(start, limit), f.Neg(delta)))


def is_nonnegative(value: Value | None, depth: int = _DEPTH) -> bool:
    """Returns whether the value is provably not negative, as every size is."""
    number = constant_array(value)
    if number is not None:
        return bool((number >= 0).all())
    if producer_of(value, "Shape", "Size") is not None:
        return True
    node = producer_of(value, *_KEEPS_NONNEGATIVE, "Max", "Range")
    if node is None or depth == 0:
        return False
    if node.op_type == "Range":
        step = constant_number(node.inputs[2])
        return step is not None and step > 0 and is_nonnegative(node.inputs[0], depth - 1)
    if node.op_type == "Max":
        return any(is_nonnegative(operand, depth - 1) for operand in node.inputs)
    return all(is_nonnegative(node.inputs[place], depth - 1) for place in _KEEPS_NONNEGATIVE[node.op_type])


@rule("Range(start, limit, delta)", where={"start": has_dtype(DataType.INT32, DataType.INT64)})
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


# ---------------------------------------------------------------- gathers and slices


@rule("GatherElements(x, indices, axis=axis)")
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


@rule("Slice(x, starts, ends, *rest)", since=10)
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
    places = [place % len(sizes) for place in places]
    first, last = (None if given is None else _clipped(f, x, sizes, places, given) for given in bounds)
    return f.Slice(x, first or starts, last or ends, *rest) if first or last else None


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


# ---------------------------------------------------------------- distinct elements


@rule("Unique(x, sorted=is_sorted)")
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
    for place in [place for place, output in enumerate(node.outputs) if is_read(output)]:
        if place == 0:
            found = f.Gather(numbers, positions)
            results[0] = f.Cast(found, to=DataType.BOOL) if x.dtype == DataType.BOOL else found
        elif place == 1:
            results[1] = f.Gather(order, positions)
        elif place == 2:
            runs = f.Sub(f.CumSum(f.Cast(begins, to=DataType.INT64), np.array(0)), 1)
            results[2] = f.Gather(runs, f.emit("TopK", [order, length], {"axis": 0, "largest": 0}, outputs=2)[1])
        else:
            results[3] = f.Sub(f.Concat(f.Slice(positions, [1], [_END], [0]), length, axis=0), positions)
    return results
