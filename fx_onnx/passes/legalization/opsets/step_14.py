"""Opset 15 → 14."""

from __future__ import annotations

import sys

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.opsets.step import OpsetStep

__all__ = ["STEP_14"]


def shape(f: NodeBuilder) -> None:
    """Shape<start, end>(x) → Slice(Shape(x), start, end).

    Legal because Slice clamps negative and large bounds as Shape does.
    """
    node = f.node
    start, end = f.attribute("start", 0), f.attribute("end")
    if start == 0 and end is None:
        f.editor.replace(node, "Shape", list(node.inputs), {})
        return
    sizes = f.Shape(*node.inputs)
    bounds = [f.constant([start]), f.constant([sys.maxsize if end is None else end]), f.constant([0])]
    f.editor.replace(node, "Slice", [sizes, *bounds], {})


def batch_normalization(f: NodeBuilder) -> None:
    """BatchNormalization(x, scale, bias, mean, variance) of mixed types → the same in one type, between Casts.

    Legal because float32 represents all numbers of the narrower types. Opset 15 allows float32 statistics for a float16
    x; opset 14 allows one type for x, scale and bias.
    """
    node = f.node
    dtypes = {x.dtype for x in node.inputs if x is not None and x.dtype is not None}
    if len(dtypes) < 2:
        return
    widest = max(dtypes, key=lambda dtype: dtype.bitwidth)
    inputs = [x if x is None or x.dtype is widest else f.Cast(x, to=int(widest)) for x in node.inputs]
    result, *statistics = f.emit("BatchNormalization", inputs, node.attributes, outputs=len(node.outputs))
    result.shape = node.outputs[0].shape
    for output, statistic in zip(list(node.outputs[1:]), statistics, strict=True):
        f.editor.replace_result(output, f.Cast(statistic, to=int(output.dtype or widest)))
    node.resize_outputs(1)
    f.editor.replace(node, "Cast", [result], {"to": int(f.dtype)})


STEP_14 = OpsetStep(
    14,
    rewrites={"BatchNormalization": batch_normalization, "Shape": shape},
)
