"""Legalization of operators that combine the elements along axes: sums, norms and scatters."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.core.dtypes import is_float
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import constant_integers, dims, is_read_by, producer_of
from fx_onnx.passes.rules import Result, rule

__all__ = [
    "legalize_log_sum_exp",
    "legalize_reductions",
    "legalize_scatter_reductions",
    "legalize_squares",
]

_SCATTERED = {"add": "ReduceSum", "mul": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}


@rule(
    *(
        f"{op_type}(x, axes, keepdims=keepdims, noop_with_empty_axes=noop)"
        for op_type in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
    ),
    since=18,
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
        return _log_sum_exp(f, x, axes, keepdims, noop)
    summands = x
    if node.op_type != "ReduceLogSum":
        summands = f.Abs(x) if node.op_type == "ReduceL1" else f.Mul(x, x)
    total = f.ReduceSum(summands, axes, keepdims=keepdims, noop_with_empty_axes=noop)
    if node.op_type == "ReduceLogSum":
        return f.Log(total)
    return f.Sqrt(total) if node.op_type == "ReduceL2" else total


@rule("ReduceLogSumExp(x, axes, keepdims=keepdims, noop_with_empty_axes=noop)", since=28)
def legalize_log_sum_exp(f: NodeBuilder, x: Value, axes: Value, keepdims: int, noop: int) -> Result:
    """ReduceLogSumExp(x) → m + Log(ReduceSum(Exp(x - m))) for the largest element m.

    Legal because both are equal. ONNX Runtime (measured with 1.32.0) has a kernel up to opset 27. At opset 28 it
    inlines the function body, whose Exp overflows: 89 gives infinity.
    """
    return _log_sum_exp(f, x, axes, keepdims, noop)


def _log_sum_exp(f: NodeBuilder, x: Value, axes: Value, keepdims: int, noop: int) -> Value:
    """Computes m + log(Σ exp(x - m)) for the largest element m, made finite because ∞ - ∞ is not a number."""
    limit = float(np.finfo(f.dtype.numpy()).max)
    largest = f.Clip(f.ReduceMax(x, axes, noop_with_empty_axes=noop), -limit, limit)
    result = f.Add(largest, f.Log(f.ReduceSum(f.Exp(f.Sub(x, largest)), axes, noop_with_empty_axes=noop)))
    return result if keepdims else f.ReduceMax(result, axes, keepdims=0, noop_with_empty_axes=noop)


@rule("x ** number.exponent", where={"x": lambda x: x.dtype not in (None, DataType.FLOAT)})
def legalize_squares(f: NodeBuilder, node: ir.Node, x: Value, exponent: float) -> Result:
    """ReduceMean(Pow(x, 2)) → ReduceMean(x * x), if x is not float32.

    Legal because both are the square. ONNX Runtime fuses ``x / Sqrt(ReduceMean(Pow(x, 2)) + epsilon) * w`` into
    SimplifiedLayerNormalization. It reads only an epsilon of float32, and takes 1e-5 instead of one of another dtype.
    It does not fuse a product of x with itself. Measured with ONNX Runtime 1.31.1.
    """
    return f.Mul(x, x) if exponent == 2 and is_read_by(node.outputs[0], "ReduceMean") else None


# ---------------------------------------------------------------- scatters


@rule(
    "ScatterND(x, indices, updates, reduction=reduction)",
    "ScatterElements(x, indices, updates, reduction=reduction)",
    since=18,  # earlier reductions take the axes as an attribute
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
