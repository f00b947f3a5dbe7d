"""Legalization of operators that combine the elements along axes: sums, norms and scatters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.backends.legalization.scatters import as_rows
from fx_onnx.onnx_model.dtypes import is_float
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import (
    counted,
    known_rank,
    rank_of,
    scalar_size,
    size_of,
    sizes_of,
    static_integers,
    with_shape,
)
from fx_onnx.passes.legalization.loops import Iteration, loop
from fx_onnx.passes.legalization.reductions import log_sum_exp
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import constant_array, constant_integers, dims, producer_of
from fx_onnx.passes.rules import DeclinedError, Result

__all__ = [
    "legalize_marks",
    "legalize_reductions",
    "legalize_scalar_reductions",
    "legalize_scatter_reductions",
    "legalize_scatters",
]

_COMPUTED = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare")
"""The operators that compute something of a single number too."""
_SCATTERED = {"add": "ReduceSum", "mul": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}


@legalizes("ReduceSum(x, axes | None, noop_with_empty_axes=noop)", until=12)
@legalizes(
    *(
        f"{op_type}(x, axes | None, noop_with_empty_axes=noop)"
        for op_type in (*_COMPUTED, "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd")
    ),
    until=17,
)
def reduce_axes_of_attribute(f: NodeBuilder, node: ir.Node, x: Value, axes: Value | None, noop: int) -> Result:
    """op(x, axes) → op<axes>(x).

    Legal because both mean the same for constant axes. Without axes all are reduced, except that
    ``noop_with_empty_axes`` makes the node an Identity.
    """
    known = static_integers(axes, "axes are")
    if noop and not known:
        return "it has noop_with_empty_axes and no axes" if node.op_type in _COMPUTED else x
    kept = {name: attr for name, attr in node.attributes.items() if name != "noop_with_empty_axes"}
    return f.emit(node.op_type, [x, known or None], kept)[0]


@legalizes(
    *(
        f"{op_type}(x, axes, keepdims=keepdims, noop_with_empty_axes=noop)"
        for op_type in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
    ),
    since=18,
    targets=("mnn",),
)
def legalize_reductions(f: NodeBuilder, node: ir.Node, x: Value, axes: Value, keepdims: int, noop: int) -> Result:
    """ReduceL2(x) → Sqrt(ReduceSum(x * x)); also ReduceL1, ReduceSumSquare, ReduceLogSum and ReduceLogSumExp.

    Legal because these are ONNX's definitions. The largest element is subtracted before Exp, so that a finite result
    does not overflow. MNN (measured with 3.6.1) does not read the axes of these operators at opset 18, where they are
    an input. It reads those of ReduceSum, ReduceMean, ReduceMax, ReduceMin and ReduceProd.
    """
    if x.dtype is None or not is_float(x.dtype):
        return f"the dtype is {x.dtype}"
    if node.op_type == "ReduceLogSumExp":
        return log_sum_exp(f, x, axes, keepdims, noop)
    summands = x
    if node.op_type != "ReduceLogSum":
        summands = f.Abs(x) if node.op_type == "ReduceL1" else f.Mul(x, x)
    total = f.ReduceSum(summands, axes, keepdims=keepdims, noop_with_empty_axes=noop)
    if node.op_type == "ReduceLogSum":
        return f.Log(total)
    return f.Sqrt(total) if node.op_type == "ReduceL2" else total


@legalizes(
    *(
        f"{op_type}(x, _ | None)"
        for op_type in (
            *_COMPUTED,
            "ReduceLogSumExp",
            "ReduceMax",
            "ReduceMean",
            "ReduceMin",
            "ReduceProd",
            "ReduceSum",
        )
    ),
    since=18,
    targets=("tensorrt",),
)
def legalize_scalar_reductions(f: NodeBuilder, node: ir.Node, x: Value) -> Result:
    """ReduceSum(x) → ReduceSum(Reshape(x, [-1]), 0), and all other reductions, if x has no axes, or may have none.

    Legal because both reduce all numbers to one. TensorRT for RTX (1.7.1) has no reduction of a tensor without axes.
    """
    reduces_all = (
        not any(node.inputs[1:]) and not f.attribute("keepdims", 1) and not f.attribute("noop_with_empty_axes")
    )
    if dims(with_shape(f, x)) != () and (x.shape is not None or not reduces_all):
        return None
    return f.emit(node.op_type, [f.Reshape(x, [-1]), [0]], {"keepdims": 0})[0]


# ---------------------------------------------------------------- cumulative sums


@legalizes("CumSum(x, axis)", until=10)
def add_slices_by_loop(f: NodeBuilder, x: Value, axis: Value) -> Result:
    """CumSum(x, axis) → Loop that adds one slice of x in each iteration.

    Legal because this is the definition of CumSum.
    """
    rank = known_rank(f)
    (reduced,) = static_integers(axis, "axis is") or [0]
    if not rank:
        return "its input is a scalar"
    is_reverse, is_exclusive = f.attribute("reverse", 0), f.attribute("exclusive", 0)
    order = [reduced % rank, *(other for other in range(rank) if other != reduced % rank)]
    slices, length = f.Transpose(x, perm=order), scalar_size(f, x, order[0])
    last = f.Sub(length, 1)
    zero = f.constant(0)
    start = f.Expand(zero, f.Concat(*(size_of(f, x, dim) for dim in order[1:]), axis=0)) if rank > 1 else zero

    def add_slice(b: NodeBuilder, number: Value, carried: Sequence[Value]) -> Iteration:
        total = b.Add(*carried, b.Gather(slices, b.Sub(last, number) if is_reverse else number, axis=0))
        return Iteration([total], [carried[0] if is_exclusive else total])

    sums = loop(f, [start], add_slice, count=length)[1]
    if is_reverse:
        sums = f.Gather(sums, f.Sub(last, counted(f, length)), axis=0)
    return f.Transpose(sums, perm=[order.index(dim) for dim in range(rank)])


# ---------------------------------------------------------------- scatters


@legalizes(
    "ScatterND(x, indices, updates, reduction=reduction)",
    "ScatterElements(x, indices, updates, reduction=reduction)",
    since=18,
    targets=("mnn",),
)
def legalize_scatter_reductions(
    f: NodeBuilder, node: ir.Node, x: Value, indices: Value, updates: Value, reduction: str
) -> Result:
    """ScatterND(x, i, u, add) → ReduceSum(Concat(x, Where(i = row, u, 0))) for each row of x; also mul, max and min.

    Legal where the indices select along the first axis only: it combines the same numbers, in another order. It needs
    memory for rows × updates elements. MNN (measured with 3.6.1) ignores the attribute ``reduction``: of two updates of
    one element, the last one remains.
    """
    if reduction == "none" or x.dtype is None:
        return None
    sizes, places = dims(x), _places(node, indices)
    if sizes is None or places is None or (node.op_type == "ScatterElements" and len(sizes) != 1):
        return "the indices do not select along the first axis only"
    if node.op_type == "ScatterND" and places is indices:
        places = f.Squeeze(indices, [1])
    return _combined_rows(f, x, places, updates, reduction)


@legalizes(
    "ScatterND(x, indices, updates, reduction=reduction)",
    "ScatterElements(x, indices, updates, reduction=reduction)",
    targets=("qnn", "tensorrt"),
)
def legalize_scatters(
    f: NodeBuilder, node: ir.Node, x: Value, indices: Value, updates: Value, reduction: str
) -> Result:
    """ScatterElements(x, i, u, add) → ReduceSum(Concat(x, Where(i = position, u, 0))); also mul, max, min, ScatterND.

    Legal because it combines the same numbers, in another order. A ScatterND combines whole rows. TensorRT for RTX
    (1.7.1) has no scatter with a reduction. A product with a one-hot matrix needs less memory, but makes NaN of
    infinite updates.
    """
    if reduction == "none" or x.dtype is None:
        return None
    x, indices, updates = (with_shape(f, value) for value in (x, indices, updates))
    if node.op_type == "ScatterND":
        rows, places, updates, _ = as_rows(f, node, x, indices, updates)
        result = _combined_rows(f, rows, places, updates, reduction)
        return result if rows is x else f.Reshape(result, f.Shape(x), allowzero=1)
    axis = f.attribute("axis", 0) % rank_of(x)
    is_read = _is_read(f, x, indices, axis)
    return _combined(f, x, is_read, f.Unsqueeze(updates, [axis]), axis, reduction)


@legalizes("ScatterElements(x, indices, updates)", targets=("tensorrt",))
def legalize_marks(f: NodeBuilder, x: Value, indices: Value, updates: Value) -> Result:
    """ScatterElements(x, i, Expand(c)) → Where(any(i = position), c, x), for one number c.

    Legal because the updates are equal. TensorRT for RTX (1.7.1) needs to know that the updates have the sizes of the
    indices, and that these are not longer than x; static ones stay.
    """
    known, sizes = dims(indices), dims(x)
    fits = known is not None and sizes is not None and known == dims(updates)
    fits = fits and all(
        isinstance(count, int) and isinstance(size, int) and count <= size
        for count, size in zip(known or (), sizes or (), strict=True)
    )
    filling = None if fits or f.attribute("reduction", "none") != "none" else _filling(f, updates)
    if filling is None:
        return None
    x, indices = (with_shape(f, value) for value in (x, indices))
    axis = f.attribute("axis", 0) % rank_of(x)
    counts = f.ReduceMax(f.Cast(_is_read(f, x, indices, axis), to=DataType.INT32), [axis + 1], keepdims=0)
    return f.Where(f.Cast(counts, to=DataType.BOOL), filling, x)


def _filling(f: NodeBuilder, value: Value) -> Value | None:
    """Returns the one number that a constant or an Expand repeats; None if it is another tensor."""
    array, expand = constant_array(value), producer_of(value, "Expand")
    if array is not None and array.size and (array == array.flat[0]).all():
        return f.constant(array.reshape(-1)[0])
    return expand.inputs[0] if expand is not None and dims(expand.inputs[0]) == () else None


def _is_read(f: NodeBuilder, x: Value, indices: Value, axis: int) -> Value:
    """Returns whether an index, along the axis after ``axis``, is the position along ``axis`` of an element of x.

    Raises:
        DeclinedError: the indices do not have the sizes of x beside the axis.
    """
    rank, beside = rank_of(x), [{*pair} for pair in zip(sizes_of(x), sizes_of(indices), strict=True)]
    if any(len(sizes) > 1 or None in sizes for sizes in (*beside[:axis], *beside[axis + 1 :])):
        raise DeclinedError("the indices do not have the sizes of the tensor beside the axis")
    every = f.Unsqueeze(counted(f, scalar_size(f, x, axis)), list(range(1, rank - axis + 1)))
    return f.Equal(every, f.Unsqueeze(_from_zero(f, indices, size_of(f, x, axis)), [axis]))


def _combined_rows(f: NodeBuilder, x: Value, places: Value, updates: Value, reduction: str) -> Value:
    """Returns x after the reduction of its rows at places, a vector, with the rows of updates."""
    size = f.Shape(x, start=0, end=1)
    places = _from_zero(f, places, size)
    is_read = f.Equal(f.Unsqueeze(f.Range(0, f.Squeeze(size, [0]), 1), [1]), places)
    if rank_of(x) > 1:
        is_read = f.Unsqueeze(is_read, list(range(2, rank_of(x) + 1)))
    return _combined(f, x, is_read, updates, 0, reduction)


def _combined(f: NodeBuilder, x: Value, is_read: Value, updates: Value, axis: int, reduction: str) -> Value:
    """Returns the reduction of x and of the updates that it reads, whose axis follows that of x."""
    parts = f.Where(is_read, updates, _neutral(x.dtype or f.dtype, reduction))
    # With x among the numbers, an element without updates is not the reduction of nothing.
    numbers = f.Concat(f.Unsqueeze(x, [axis + 1]), parts, axis=axis + 1)
    return f.emit(_SCATTERED[reduction], [numbers, [axis + 1]], {"keepdims": 0})[0]


def _from_zero(f: NodeBuilder, places: Value, size: Value) -> Value:
    """Returns indices as int64, with the size added to negative ones."""
    places = places if places.dtype == DataType.INT64 else f.Cast(places, to=DataType.INT64)
    return f.Where(f.Greater([0], places), f.Add(places, size), places)


def _places(node: ir.Node, indices: Value) -> Value | None:
    """Returns the indices if they are a vector or a column, or the vector that a column was made of."""
    if node.op_type == "ScatterElements":
        return indices
    sizes, column = dims(indices), producer_of(indices, "Unsqueeze")
    if sizes is not None and len(sizes) == 2 and sizes[1] == 1:
        return indices
    if column is None or constant_integers(column.inputs[1]) not in ([1], [-1]):
        return None
    return column.inputs[0] if len(dims(column.inputs[0]) or ()) == 1 else None


def _neutral(dtype: DataType, reduction: str) -> Any:
    """Returns the number that does not change a result."""
    kind = dtype.numpy()
    if reduction in ("add", "mul"):
        return np.array(int(reduction == "mul"), kind)
    if is_float(dtype):
        return np.array(-np.inf if reduction == "max" else np.inf, kind)
    limits = np.iinfo(kind)
    return np.array(limits.min if reduction == "max" else limits.max, kind)
