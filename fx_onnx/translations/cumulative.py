"""Cumulative operators: CumSum and CumProd, and Scan where ONNX has no operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.onnx_model import dtypes
from fx_onnx.onnx_model.dtypes import value_dtype
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter, as_tuple
from fx_onnx.translations._known_tensors import filled
from fx_onnx.translations._widening import emit_widened

# The body of a scan takes its emitter, the states and a slice, and returns the new states.
Body = Callable[[Emitter, Sequence[Value], Value], Sequence[Value]]


def scan(op: Emitter, self: Value, dim: int, initial: Sequence[Value], body: Body, results: int = 1) -> list[Value]:
    """Emits one Scan over the slices of self along dim; returns the first ``results`` states, stacked over all slices.

    ``initial`` holds the states before the first slice; a state that is returned has the sizes of a slice. The cost is
    linear in the size of dim.
    """
    axis = dim % op.rank(self)
    order = [axis, *(other for other in range(op.rank(self)) if other != axis)]
    states = [op.graph_input("state", value_dtype(state), op.sizes(state)) for state in initial]
    part = op.graph_input("part", value_dtype(self), _sizes_without(op, self, axis))
    inner = op.nested([*states, part])
    after = list(body(inner, states, part))
    graph = inner.finish([*after, *(inner.Identity(state) for state in after[:results])])
    # With scan_input_axes, an empty tensor ends the process of ONNX Runtime.
    slices = op.Transpose(self, perm=order) if axis else self
    length = None if isinstance(op.sizes(self)[axis], int) else op.Shape(slices, start=0, end=1)
    if length is not None:  # ONNX Runtime fails without a slice
        slices = op.Concat(slices, op.unsqueeze(_filled_slice(op, self, axis, 0), 0), axis=0)
    count = len(initial)
    scanned = op.Scan(*initial, slices, body=graph, num_scan_inputs=1, outputs=count + results)
    outputs = as_tuple(scanned)
    for output, state in zip(outputs, [*initial, *initial[:results]], strict=True):
        output.dtype = value_dtype(state)
    rows = [row if length is None else op.Slice(row, [0], length, [0]) for row in outputs[count:]]
    return [op.Transpose(row, perm=[order.index(k) for k in range(len(order))]) if axis else row for row in rows]


def _sizes_without(op: Emitter, value: Value, dim: int) -> list[Size]:
    sizes = list(op.sizes(value))
    del sizes[dim]
    return sizes


def _is_trivial(op: Emitter, self: Value) -> bool:
    """Returns whether self is 0-d or empty, so that it equals its cumulative sum, product and maximum."""
    return not op.rank(self) or any(symbolic_sizes.same_size(size, 0) for size in op.sizes(self))


@translates(aten.cumsum.default)
def aten_cumsum(op: Emitter, self: Value, dim: int, *, dtype: torch.dtype | None = None) -> Value:
    """Emits CumSum, in int64 for integers."""
    self = op.with_sizes(op.cast(self, op.out_dtype), op.sizes(self))
    return self if _is_trivial(op, self) else emit_widened(op, "CumSum", self, axis=dim)


@translates(aten.cumprod.default)
def aten_cumprod(op: Emitter, self: Value, dim: int, *, dtype: torch.dtype | None = None) -> Value:
    """Emits a Scan of Mul, in int64 for integers."""
    self = op.with_sizes(op.cast(self, op.out_dtype), op.sizes(self))
    if _is_trivial(op, self):
        return self
    start = _filled_slice(op, self, dim, 1)
    return scan(op, self, dim, [start], lambda inner, states, part: [emit_widened(inner, "Mul", states[0], part)])[0]


@translates(aten.cumprod.default, since=26)
def aten_cumprod_26(op: Emitter, self: Value, dim: int, *, dtype: torch.dtype | None = None) -> Value:
    """Emits CumProd, in int64 for integers."""
    self = op.with_sizes(op.cast(self, op.out_dtype), op.sizes(self))
    return self if _is_trivial(op, self) else emit_widened(op, "CumProd", self, axis=dim)


def _filled_slice(op: Emitter, self: Value, dim: int, number: float) -> Value:
    """Returns a number expanded to the sizes of a slice of self."""
    return op.expand(op.with_sizes(op.cast(number, value_dtype(self)), ()), _sizes_without(op, self, dim))


@translates(aten.cummax.default)
def aten_cummax(op: Emitter, self: Value, dim: int) -> Sequence[Value]:
    """Emits a Scan that returns the running maximum and its last index; NaN stays once it occurs."""
    return _extremes(op, self, dim, "GreaterOrEqual", -1)


@translates(aten.cummin.default)
def aten_cummin(op: Emitter, self: Value, dim: int) -> Sequence[Value]:
    """Emits a Scan that returns the running minimum and its last index; NaN stays once it occurs."""
    return _extremes(op, self, dim, "LessOrEqual", 1)


def _extremes(op: Emitter, self: Value, dim: int, comparison: str, sign: int) -> Sequence[Value]:
    """Emits the Scan; its states are the extreme so far, the index of that extreme, and the index of the slice."""
    if _is_trivial(op, self):
        return self, filled(op, op.out_sizes, 0, DataType.INT64)
    dtype = value_dtype(self)
    boolean, floating = dtype == DataType.BOOL, dtypes.is_float(dtype)
    if boolean:
        self = op.cast(self, DataType.INT32)
    start = _filled_slice(op, self, dim, sign * float("inf") if floating else _integer_limit(value_dtype(self), sign))
    index = op.expand(op.with_sizes(op.constant(0), ()), _sizes_without(op, self, dim))
    number = op.with_sizes(op.constant(0), ())

    def body(inner: Emitter, states: Sequence[Value], part: Value) -> Sequence[Value]:
        better = emit_widened(inner, comparison, part, states[0])
        if floating:
            better = inner.Or(better, emit_widened(inner, "IsNaN", part))
        best = inner.Where(better, part, states[0])
        return best, inner.Where(better, states[2], states[1]), inner.Add(states[2], 1)

    values, indices = scan(op, self, dim, [start, index, number], body, results=2)
    return op.cast(values, dtype), indices


def _integer_limit(dtype: DataType, sign: int) -> int:
    """Returns the smallest number of an integer dtype for the sign -1, and the largest for 1."""
    limits = np.iinfo(dtype.numpy())
    return int(limits.min if sign < 0 else limits.max)


@translates(aten.logcumsumexp.default)
def aten_logcumsumexp(op: Emitter, self: Value, dim: int) -> Value:
    """Emits a Scan of log(exp a + exp b), computed as max(a, b) + log(1 + exp(-|a - b|))."""
    if _is_trivial(op, self):
        return self
    start = _filled_slice(op, self, dim, float("-inf"))

    def body(inner: Emitter, states: Sequence[Value], part: Value) -> Sequence[Value]:
        def emit(op_type: str, *operands: Value) -> Value:
            return emit_widened(inner, op_type, *operands)

        largest = emit("Max", states[0], part)
        distance = emit("Abs", emit("Sub", states[0], part))
        rest = emit("Log", emit("Add", emit("Exp", emit("Neg", distance)), _one(inner, part)))
        # The difference of equal infinities is NaN.
        rest = inner.Where(emit("Equal", states[0], part), inner.cast(math.log(2), value_dtype(part)), rest)
        return [emit("Add", largest, rest)]

    return scan(op, self, dim, [start], body)[0]


def _one(op: Emitter, like: Value) -> Value:
    return op.cast(1, value_dtype(like))
