"""Facts and expressions that rows of several subjects share."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import attribute, constant_array, constant_integers, producer_of
from fx_onnx.passes.rules import DeclinedError
from fx_onnx.passes.shape_inference import fill_shapes

__all__ = [
    "axis_of",
    "counted",
    "known_rank",
    "number_axis",
    "rank_of",
    "round_half_to_even",
    "scalar_size",
    "size_of",
    "sizes_of",
    "static_integers",
    "swapped_with_last",
    "with_shape",
]

# ---------------------------------------------------------------- facts


def rank_of(value: Value | None) -> int:
    """Returns the rank.

    Raises:
        DeclinedError: it is not known.
    """
    return len(sizes_of(value))


def sizes_of(value: Value | None) -> tuple[int | str | None, ...]:
    """Returns the sizes: numbers, names, or None for a size of which nothing is known.

    Raises:
        DeclinedError: the rank is not known.
    """
    if value is None or value.shape is None:
        raise DeclinedError("the rank of its input is not known")
    return tuple(size if isinstance(size, int) else size.value for size in value.shape)


def known_rank(f: NodeBuilder) -> int:
    """Returns the rank of the first input of a node whose first result has the same rank, and gives it to the input.

    Raises:
        DeclinedError: the rank is known neither for the input nor for the result.
    """
    x = f.node.inputs[0]
    if x is not None and x.shape is None:
        x.shape = ir.Shape([None] * rank_of(f.node.outputs[0]))
    return rank_of(x)


def with_shape(f: NodeBuilder, value: Value) -> Value:
    """Returns the value, after it inferred the shape of one that a translation left without a shape."""
    node = value.producer() if value.shape is None else None
    if node is not None:
        for operand in node.inputs:
            if operand is not None:
                with_shape(f, operand)
        fill_shapes(node, f.editor.opset)
    return value


def static_integers(value: Value | None, what: str) -> list[int] | None:
    """Returns the integers of an input that must be constant; None if the node does not have the input.

    Raises:
        DeclinedError: they are computed at run time; ``what`` is for example "axes are".
    """
    if value is None:
        return None
    made = producer_of(value, "Constant")
    numbers = attribute(made, "value_ints") if made is not None else None
    numbers = constant_integers(value) if numbers is None else list(numbers)
    if numbers is None:
        raise DeclinedError(f"its {what} computed at run time")
    return numbers


def axis_of(f: NodeBuilder, value: Value | None, default: int = 0) -> int:
    """Returns the attribute ``axis`` of the node, counted from 0."""
    axis: int = f.attribute("axis", default)
    return axis if axis >= 0 else axis + rank_of(value)


def swapped_with_last(rank: int, axis: int) -> list[int]:
    """Returns the permutation that swaps an axis with the last one, which is another one."""
    return [*range(axis), rank - 1, *range(axis + 1, rank - 1), axis]


# ---------------------------------------------------------------- sizes


def size_of(f: NodeBuilder, value: Value, axis: int) -> Value:
    """Returns the size of one axis as a 1-D value of one element: a constant where it is known."""
    size = None if value.shape is None else value.shape[axis]
    if isinstance(size, int):
        return f.constant([size])
    if f.editor.opset >= 15:
        return f.Shape(value, start=axis, end=axis + 1 or None)
    index = axis if axis >= 0 or value.shape is None else axis + len(value.shape)
    return f.Gather(f.Shape(value), [index], axis=0)


def scalar_size(f: NodeBuilder, value: Value, axis: int) -> Value:
    """Returns the size of an axis as a scalar: a constant where it is known."""
    size = None if value.shape is None and axis >= 0 else sizes_of(value)[axis]
    if isinstance(size, int):
        return f.constant(size, DataType.INT64)
    index = axis if axis >= 0 else axis + rank_of(value)
    return f.Gather(f.Shape(value), f.constant(index, DataType.INT64), axis=0)


# ---------------------------------------------------------------- expressions


def counted(f: NodeBuilder, count: Value) -> Value:
    """Returns the integers 0, 1, … below ``count``, a scalar that is not negative: a constant where it is known.

    Opset 10 and the older ones have no Range.
    """
    known = constant_array(count)
    if known is not None:
        return f.constant(np.arange(int(known.reshape(())), dtype=np.int64))
    if f.editor.opset > 10:
        return f.Range(0, count, 1)
    ones = f.ConstantOfShape(f.Unsqueeze(count, [0]), value=ir.Tensor(np.ones(1, np.int64)))
    return f.Squeeze(f.NonZero(ones), [0])


def number_axis(f: NodeBuilder, x: Value, later: int) -> Value:
    """Returns numbers along one axis with ``later`` axes of size 1 after it, so that they broadcast along that axis."""
    return f.Unsqueeze(x, list(range(1, later + 1))) if later else x


def round_half_to_even(f: NodeBuilder, x: Value) -> Value:
    """Returns x rounded to the nearest integer, halves to the even one, for floats."""
    floor = f.Floor(x)
    rest = f.Sub(x, floor)  # exact; NaN for an infinity, which then stays
    is_odd = f.Greater(f.Sub(floor, f.Mul(f.Floor(f.Mul(floor, 0.5)), 2.0)), 0.5)
    is_half = f.And(f.Not(f.Less(rest, 0.5)), f.Not(f.Greater(rest, 0.5)))
    up = f.Or(f.Greater(rest, 0.5), f.And(is_half, is_odd))
    return f.Add(floor, f.Cast(up, to=x.dtype))
