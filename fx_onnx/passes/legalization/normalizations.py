"""Legalization of normalizations and losses."""

from __future__ import annotations

from onnx_ir import Value

from fx_onnx.passes.builder import NodeBuilder, undo_float32_rounding
from fx_onnx.passes.legalization.forms import rank_of
from fx_onnx.passes.legalization.table import WIDE, legalizes
from fx_onnx.passes.rules import Result


@legalizes("InstanceNormalization(x, scale, shift)", lacks=WIDE)
def normalize_instance(f: NodeBuilder, x: Value, scale: Value, shift: Value) -> Result:
    """InstanceNormalization(x, scale, shift) → (x - mean) / Sqrt(variance + epsilon) * scale + shift.

    Legal because this is the definition; the mean and the variance are over the spatial axes.
    """
    axes = list(range(2, rank_of(x)))
    scale, shift = (f.Unsqueeze(each, [axis - 1 for axis in axes]) for each in (scale, shift))
    centred = f.Sub(x, f.ReduceMean(x, axes, keepdims=1))
    variance = f.ReduceMean(f.Mul(centred, centred), axes, keepdims=1)
    deviation = f.Sqrt(f.Add(variance, undo_float32_rounding(f.attribute("epsilon", 1e-5))))
    return f.Add(f.Mul(f.Div(centred, deviation), scale), shift)
