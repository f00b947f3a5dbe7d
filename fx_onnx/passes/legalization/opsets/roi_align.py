"""RoiAlign with regions aligned to the centers of pixels, for opset 15, which cannot express it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.opsets.loops import Iteration, loop
from fx_onnx.passes.legalization.opsets.step import UnsupportedNodeError, size_of

__all__ = ["roi_align"]


def roi_align(f: NodeBuilder) -> None:
    """RoiAlign<coordinate_transformation_mode=half_pixel>(x, rois, batch) → Loop of rows * x[batch] * columns.

    Legal because the average of bilinear samples at a grid of rows and columns is a product with the average weights of
    the rows and of the columns. Opset 15 has the mode output_half_pixel only, whose nodes stay.
    """
    node = f.node
    x, regions, batch = node.inputs
    kept = {name: attr for name, attr in node.attributes.items() if name != "coordinate_transformation_mode"}
    if f.attribute("coordinate_transformation_mode", "half_pixel") == "output_half_pixel":
        f.editor.replace(node, "RoiAlign", list(node.inputs), kept)
        return
    if f.attribute("mode", "avg") != "avg" or x is None or regions is None:
        raise UnsupportedNodeError("it takes the maximum of regions that are aligned to the centers of pixels")

    scale, ratio = float(f.attribute("spatial_scale", 1.0)), f.attribute("sampling_ratio", 0)
    height, width = (f.attribute(f"output_{name}", 1) for name in ("height", "width"))

    def one_region(b: NodeBuilder, number: Value, carried: Sequence[Value]) -> Iteration:
        image = b.Gather(x, b.Gather(batch, number, axis=0), axis=0)
        corners = b.Sub(b.Mul(b.Gather(regions, number, axis=0), scale), 0.5)
        rows, columns = (
            _weights(b, x, corners, place, axis, bins, ratio) for place, axis, bins in ((1, 2, height), (0, 3, width))
        )
        pooled = b.MatMul(b.MatMul(rows, image), b.Transpose(columns, perm=[1, 0]))
        return Iteration([b.Identity(*carried)], [pooled])

    unused = f.constant(0, DataType.INT64)
    count = f.Squeeze(size_of(f, regions, 0), [0], sizes=())
    pooled = loop(f, [unused], one_region, count=count)[1]
    sizes = f.Concat(size_of(f, regions, 0), size_of(f, x, 1), f.constant([height, width]), axis=0, sizes=(4,))
    f.editor.replace(node, "Reshape", [pooled, sizes], {"allowzero": 1})  # without a region, the Loop returns no axes


def _weights(f: NodeBuilder, x: Value, corners: Value, place: int, axis: int, bins: int, ratio: int) -> Value:
    """Returns the weights of the rows, or columns, of the image for each bin: (bins, size).

    The first corner's coordinate is at ``place``, the second corner's two places later. A ``ratio`` of 0 takes as many
    samples as a bin has rows.
    """
    start, end = (f.Gather(corners, np.array(each), axis=0, sizes=()) for each in (place, place + 2))
    length = f.Sub(end, start, sizes=())
    each = f.Div(length, float(bins), sizes=())
    wanted = f.constant(float(ratio)) if ratio > 0 else f.Ceil(each, sizes=())
    samples = f.Max(wanted, 1.0, sizes=())
    numbers = _numbers(f, f.Cast(samples, to=int(DataType.INT64), sizes=()))
    within = f.Div(f.Mul(f.Add(numbers, 0.5), each), samples)
    first = f.Add(f.Mul(f.constant(np.arange(bins, dtype=f.dtype.numpy())[:, None]), each), start)
    positions = f.Add(first, within)  # (bins, samples)
    size = f.Cast(f.Squeeze(size_of(f, x, axis), [0], sizes=()), to=int(f.dtype), sizes=())
    inside = f.And(f.GreaterOrEqual(positions, -1.0), f.LessOrEqual(positions, size))
    clipped = f.Min(f.Max(positions, 0.0), f.Sub(size, 1.0, sizes=()))
    pixels = _numbers(f, f.Cast(size, to=int(DataType.INT64), sizes=()))
    distance = f.Abs(f.Sub(f.Unsqueeze(clipped, [2]), pixels))  # (bins, samples, size)
    near = f.Mul(f.Max(f.Sub(1.0, distance), 0.0), f.Unsqueeze(f.Cast(inside, to=int(f.dtype)), [2]))
    has_samples = f.Cast(f.Greater(wanted, 0.0, sizes=()), to=int(f.dtype), sizes=())
    result: Value = f.Mul(f.Div(f.ReduceSum(near, [1], keepdims=0), samples), has_samples)
    return result


def _numbers(f: NodeBuilder, count: Value) -> Value:
    """Returns 0, 1, … below ``count`` as floats."""
    zero, one = (f.constant(number, DataType.INT64) for number in (0, 1))
    result: Value = f.Cast(f.Range(zero, count, one), to=int(f.dtype))
    return result
