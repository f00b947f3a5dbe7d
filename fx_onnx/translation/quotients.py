"""Quotients for which ONNX Runtime does not end the process, as for the lowest integer divided by -1, and roundings."""

from __future__ import annotations

from onnx_ir import DataType, Value

from fx_onnx.translation.node_emitter import NodeEmitter

OVERFLOWING = (DataType.INT32, DataType.INT64)
"""The dtypes whose lowest number ONNX Runtime cannot divide by -1; narrower ones are divided in 32 bits."""


def without_minus_one(op: NodeEmitter, dividend: Value, divisor: Value) -> tuple[Value, Value]:
    """Returns a dividend and a divisor with the same quotient, of which the divisor is never -1.

    x / -1 becomes -x / 1. The lowest number stays the lowest one, as in torch.
    """
    is_minus_one = op.Equal(divisor, op.number(-1, divisor.dtype))
    shape, divisor = divisor.shape, op.Where(is_minus_one, op.number(1, divisor.dtype), divisor)
    result = op.Where(is_minus_one, op.Neg(dividend), dividend)
    if shape is not None and shape.rank() == 0:
        result.shape = dividend.shape  # the optimizer removes the choice where the divisor is a constant
    return result, divisor


def truncated(op: NodeEmitter, value: Value) -> Value:
    """Returns a float value rounded towards zero: Ceil below zero, Floor above."""
    return op.Where(op.Less(value, 0), op.Ceil(value), op.Floor(value))
