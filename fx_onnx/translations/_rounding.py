"""Roundings for which ONNX has no operator."""

from onnx_ir import Value

from fx_onnx.translation.emitter import Emitter


def truncated(op: Emitter, value: Value) -> Value:
    """Returns a float value rounded towards zero: Ceil below zero, Floor above."""
    return op.Where(op.Less(value, 0), op.Ceil(value), op.Floor(value))
