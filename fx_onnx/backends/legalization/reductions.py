"""Legalization of operators that combine the elements along axes: sums, norms and scatters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.onnx_model.dtypes import is_float
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import counted, known_rank, scalar_size, size_of, static_integers
from fx_onnx.passes.legalization.loops import Iteration, loop
from fx_onnx.passes.legalization.reductions import log_sum_exp
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import constant_integers, dims, producer_of
from fx_onnx.passes.rules import Result

__all__ = ["legalize_reductions", "legalize_scatter_reductions"]

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
    is_read = _is_place(f, x, places)
    if len(sizes) > 1:
        is_read = f.Unsqueeze(is_read, list(range(2, len(sizes) + 1)))
    parts = f.Where(is_read, updates, _neutral(x.dtype, reduction))
    # With x among the numbers, a row without updates is not the reduction of nothing.
    numbers = f.Concat(f.Unsqueeze(x, [1]), parts, axis=1)
    return f.emit(_SCATTERED[reduction], [numbers, [1]], {"keepdims": 0})[0]


def _is_place(f: NodeBuilder, x: Value, places: Value) -> Value:
    """Returns whether an update, a column, belongs to a row of x. A negative index counts from the end."""
    rows = f.Shape(x, start=0, end=1)
    places = f.Where(f.Greater([0], places), f.Add(places, rows), places)
    every = f.Range(0, f.Squeeze(rows, [0]), 1)
    return f.Equal(f.Unsqueeze(every, [1]), places)


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
