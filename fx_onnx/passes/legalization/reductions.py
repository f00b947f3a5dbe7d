"""Legalization of operators that combine the elements along axes: sums, norms and scatters."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.table import DEFAULT, legalizes
from fx_onnx.passes.matchers import is_read_by
from fx_onnx.passes.rules import Result

__all__ = ["legalize_log_sum_exp", "legalize_squares", "log_sum_exp"]


@legalizes(
    "ReduceLogSumExp(x, axes, keepdims=keepdims, noop_with_empty_axes=noop)",
    since=28,
    targets=(DEFAULT,),
    after_casts=True,
)
def legalize_log_sum_exp(f: NodeBuilder, x: Value, axes: Value, keepdims: int, noop: int) -> Result:
    """ReduceLogSumExp(x) → m + Log(ReduceSum(Exp(x - m))) for the largest element m.

    Legal because both are equal. ONNX Runtime (measured with 1.32.0) has a kernel up to opset 27. At opset 28 it
    inlines the function body, whose Exp overflows: 89 gives infinity.
    """
    return log_sum_exp(f, x, axes, keepdims, noop)


def log_sum_exp(f: NodeBuilder, x: Value, axes: Value, keepdims: int, noop: int) -> Value:
    """Computes m + log(Σ exp(x - m)) for the largest element m, made finite because ∞ - ∞ is not a number."""
    limit = float(np.finfo(f.dtype.numpy()).max)
    largest = f.Clip(f.ReduceMax(x, axes, noop_with_empty_axes=noop), -limit, limit)
    result = f.Add(largest, f.Log(f.ReduceSum(f.Exp(f.Sub(x, largest)), axes, noop_with_empty_axes=noop)))
    return result if keepdims else f.ReduceMax(result, axes, keepdims=0, noop_with_empty_axes=noop)


@legalizes(
    "x ** number.exponent",
    targets=(DEFAULT,),
    where={"x": lambda x: x.dtype not in (None, DataType.FLOAT)},
    after_casts=True,
)
def legalize_squares(f: NodeBuilder, node: ir.Node, x: Value, exponent: float) -> Result:
    """ReduceMean(Pow(x, 2)) → ReduceMean(x * x), if x is not float32.

    Legal because both are the square. ONNX Runtime fuses ``x / Sqrt(ReduceMean(Pow(x, 2)) + epsilon) * w`` into
    SimplifiedLayerNormalization. It reads only an epsilon of float32, and takes 1e-5 instead of one of another dtype.
    It does not fuse a product of x with itself. Measured with ONNX Runtime 1.31.1.
    """
    return f.Mul(x, x) if exponent == 2 and is_read_by(node.outputs[0], "ReduceMean") else None
