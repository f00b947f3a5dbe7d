"""Legalization of operators that combine the elements along axes: sums, norms and scatters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.table import DEFAULT, legalizes
from fx_onnx.passes.matchers import is_read_by, producer_of
from fx_onnx.passes.rules import Result

__all__ = ["FusedNorm", "fused_norm", "legalize_log_sum_exp", "legalize_squares", "log_sum_exp"]

_NORM = ["Pow", "ReduceMean", "Add", "Sqrt", "Div"]
_READERS_OF_INPUT = 2
"""The readers in a norm: Pow and Div, or the first ReduceMean and Sub."""


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


@legalizes("x ** number.exponent", targets=(DEFAULT,), after_casts=True)
def legalize_squares(f: NodeBuilder, node: ir.Node, x: Value, exponent: float) -> Result:
    """ReduceMean(Pow(x, 2)) → ReduceMean(x * x), if x is not float32, or in a layer norm of several dtypes.

    Legal because both are the square. ONNX Runtime fuses ``x / Sqrt(ReduceMean(Pow(x, 2)) + epsilon) * w`` into
    SimplifiedLayerNormalization. It reads only an epsilon of float32, and takes 1e-5 instead of one of another dtype.
    If x is centered, it fuses the Casts beside into a LayerNormalization of two dtypes, and does not load the model.
    It does not fuse a product of x with itself. Measured with ONNX Runtime 1.31.1.
    """
    if exponent != 2 or not is_read_by(node.outputs[0], "ReduceMean"):
        return None
    norm = fused_norm(node)
    is_mixed = norm is not None and norm.is_centered and norm.dtype != norm.scale
    return f.Mul(x, x) if is_mixed or x.dtype not in (None, DataType.FLOAT) else None


class FusedNorm(NamedTuple):
    """The norm that ONNX Runtime makes of ``x / Sqrt(ReduceMean(Pow(x, 2)) + epsilon) * w``.

    Attributes:
        is_centered: whether x is a difference from a mean.
        dtype: the dtype of its input.
        scale: the dtype of w.
    """

    is_centered: bool
    dtype: DataType | None
    scale: DataType | None


def fused_norm(node: ir.Node) -> FusedNorm | None:
    """Returns the norm whose squares a Pow computes; None if it is no part of one.

    A Cast of the input becomes a part of the norm if only the norm reads it, and one before the scale always.
    """
    operators, value = [node.op_type], node.outputs[0]
    while operators[-1] != "Mul" and len(value.uses()) == 1:
        reader = next(iter(value.uses())).node
        operators.append(reader.op_type)
        value = reader.outputs[0]
    if operators not in ([*_NORM, "Mul"], [*_NORM, "Cast", "Mul"]):
        return None
    x = node.inputs[0]
    difference = producer_of(x, "Sub") or producer_of(_before_cast(x), "Sub")
    x = x if difference is None else difference.inputs[0]
    source = _before_cast(x) if x is not None and len(x.uses()) == _READERS_OF_INPUT else x
    return None if source is None else FusedNorm(difference is not None, source.dtype, value.dtype)


def _before_cast(x: Value | None) -> Value | None:
    cast = producer_of(x, "Cast")
    return x if cast is None else cast.inputs[0]
