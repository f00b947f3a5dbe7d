"""Rounding modes that ONNX has no operator for."""

from onnx_ir import Value

from fx_onnx.translation.emitter import Emitter


def truncated(op: Emitter, value: Value) -> Value:
    """A float value rounded towards zero, which ONNX has no operator for: ceil below zero and floor above."""
    return op.Where(op.Less(value, 0), op.Ceil(value), op.Floor(value))
