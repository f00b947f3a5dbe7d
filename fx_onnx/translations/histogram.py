"""Counts of integers."""

from __future__ import annotations

from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter


@translates(aten.bincount.default)
def aten_bincount(op: Emitter, self: Value, weights: Value | None = None, minlength: Size = 0) -> Value:
    """Emits ScatterElements that adds 1, or the weight, at the index given by each integer."""
    numbers, dtype = op.cast(self, DataType.INT64), op.out_dtype
    largest = op.ReduceMax(op.Concat(numbers, op.Sub(op.shape([minlength]), [1]), axis=0), keepdims=1)
    zeros = op.Expand(op.cast(0, dtype), op.Add(largest, [1]))
    updates = op.Expand(op.cast(1, dtype), op.Shape(numbers)) if weights is None else op.cast(weights, dtype)
    return op.ScatterElements(zeros, numbers, updates, axis=0, reduction="add")
