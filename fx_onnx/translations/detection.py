"""torchvision's operators on boxes and regions of interest."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from onnx_ir import DataType, Value
from torch import Tensor

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translations._loop_node import emit_loop
from fx_onnx.translations._widening import widened


def _float32_threshold(number: float) -> float:
    """Returns a float32 threshold that a float32 overlap exceeds exactly if it exceeds ``number``.

    ONNX's threshold is a float32. Rounding ``number`` to the nearest float32 could round up.

    Raises:
        NotImplementedError: the threshold is negative, which ONNX does not admit.
    """
    if number < 0:
        raise NotImplementedError(
            f"ONNX NonMaxSuppression does not admit the negative iou_threshold {number}; use a value in [0, 1]."
        )
    nearest = np.float32(min(number, 1.0))
    return float(nearest if float(nearest) <= number else np.nextafter(nearest, np.float32(0)))


def _onnx_boxes(op: Emitter, boxes: Value) -> Value:
    """Returns boxes in ONNX's shape (1, N, 4), where a box with swapped corners has no area.

    If the end of a box is before its start, ONNX swaps the two corners, but torchvision gives the box no area. A box
    without area neither suppresses another box nor is suppressed.
    """
    low, high = op.Split(boxes, axis=1, num_outputs=2, outputs=2)
    return op.unsqueeze(op.Concat(low, op.Max(low, high), axis=1), 0)


def _nan_as_infinity(op: Emitter, scores: Value) -> Value:
    """Returns scores with infinity for NaN, because torch sorts NaN before every number."""
    return op.Where(op.IsNaN(scores), math.inf, scores)


def _as_float32(op: Emitter, *values: Value) -> list[Value]:
    """Returns values in float32, the dtype that NonMaxSuppression requires.

    Raises:
        NotImplementedError: a value is float64, which float32 cannot represent.
    """
    if any(value.dtype == DataType.DOUBLE for value in values):
        raise NotImplementedError(
            "ONNX NonMaxSuppression does not admit float64; call nms with boxes and scores in float32."
        )
    return [op.cast(value, DataType.FLOAT) for value in values]


@translates("torchvision::nms")
def torchvision_nms(op: Emitter, dets: Value, scores: Value, iou_threshold: float) -> Value:
    """Emits NonMaxSuppression: the indices of the boxes that are kept, by descending score."""
    boxes, numbers = _as_float32(op, dets, scores)
    selected = op.NonMaxSuppression(
        _onnx_boxes(op, boxes),
        op.unsqueeze(_nan_as_infinity(op, numbers), 0, 1),
        op.shape(op.sizes(scores)),
        [_float32_threshold(iou_threshold)],
    )
    return op.squeeze(op.with_sizes(op.Gather(selected, [2], axis=1), (*op.out_sizes, 1)), 1)


# Up to this number of elements in boxes, torchvision separates the classes by adding an offset to their boxes. The
# offset makes the overlaps less exact, so the translation must do the same to keep the same boxes.
_MAX_MOVED_ELEMENTS = 4000


def _offset_by_class(op: Emitter, boxes: Value, idxs: Value) -> Value:
    """Returns boxes moved by class * (largest coordinate + 1), as in torchvision; if there are many, none is moved."""
    largest = op.ReduceMax(op.Concat(op.Reshape(boxes, [-1]), [-math.inf], axis=0), keepdims=0)
    offsets = op.Mul(op.cast(idxs, DataType.FLOAT), op.Add(largest, 1.0))
    few = op.LessOrEqual(op.Size(boxes), _MAX_MOVED_ELEMENTS)
    return op.Add(boxes, op.Unsqueeze(op.Where(few, offsets, 0.0), [1]))


def _scores_by_class(op: Emitter, scores: Value, idxs: Value) -> Value:
    """Returns (1, classes, N) scores: the score of a box in its own class, -inf in the others.

    NonMaxSuppression drops boxes of score -inf, so a box with that score gets the lowest finite score in its class.
    """
    _, _, class_index, _ = op.Unique(idxs, outputs=4)
    classes = op.Range(0, op.Add(op.ReduceMax(op.Concat(class_index, [-1], axis=0), keepdims=0), 1), 1)
    own = op.Equal(op.Unsqueeze(classes, [1]), op.Unsqueeze(class_index, [0]))
    lowest = float(np.finfo(np.float32).min)
    return op.Unsqueeze(op.Where(own, op.Max(scores, lowest), -math.inf), [0])


def _sorted_by_score(op: Emitter, indices: Value, scores: Value) -> Value:
    """Returns indices by descending score; equal scores keep the order of the indices."""
    count = op.Shape(indices)
    ordered, _ = op.TopK(indices, count, largest=0)
    _, order = op.TopK(op.Gather(scores, ordered), count)
    return op.Gather(ordered, order)


@translates("fx_onnx::batched_nms")
def fx_onnx_batched_nms(op: Emitter, boxes: Value, scores: Value, idxs: Value, iou_threshold: float) -> Value:
    """Emits one NonMaxSuppression over all classes, then sorts the kept boxes by descending score."""
    corners, numbers = _as_float32(op, boxes, scores)
    numbers = _nan_as_infinity(op, numbers)
    selected = op.NonMaxSuppression(
        _onnx_boxes(op, _offset_by_class(op, corners, idxs)),
        _scores_by_class(op, numbers, idxs),
        op.shape(op.sizes(scores)),
        [_float32_threshold(iou_threshold)],
        [-math.inf],
    )
    return _sorted_by_score(op, op.Squeeze(op.Gather(selected, [2], axis=1), [1]), numbers)


@translates("fx_onnx::heatmaps_to_keypoints")
def fx_onnx_heatmaps_to_keypoints(op: Emitter, maps: Value, rois: Value) -> Sequence[Value]:
    """Emits a Loop that resizes each heatmap to its region by cubic interpolation and finds its maximum.

    Returns the positions of the maxima and their scores.
    """
    _, count, _, _ = op.sizes(maps)
    maps, rois = op.cast(maps, DataType.FLOAT), op.cast(rois, DataType.FLOAT)
    corners, ends = op.Split(rois, axis=1, num_outputs=2, outputs=2)
    extents = op.Max(op.Sub(ends, corners), 1.0)
    whole = op.cast(op.Ceil(extents), DataType.INT64)  # (K, 2), width first

    def step(inner: Emitter, region: Value, places: Value, scores: Value) -> Sequence[Value]:
        width, height = inner.Split(inner.Gather(whole, region), num_outputs=2, outputs=2)
        sizes = inner.Concat([1], inner.shape([count]), height, width, axis=0)
        heatmap = inner.Unsqueeze(inner.Gather(maps, region), [0])
        resized = inner.Resize(heatmap, None, None, sizes, mode="cubic", coordinate_transformation_mode="half_pixel")
        flat = inner.Reshape(resized, inner.Concat([1], inner.shape([count]), [-1], axis=0))
        peak = inner.ArgMax(flat, axis=2, keepdims=0)
        x_then_y = inner.Concat(
            *(inner.Unsqueeze(axis, [2]) for axis in (inner.Mod(peak, width), inner.Div(peak, width))), axis=2
        )
        best = inner.ReduceMax(flat, [2], keepdims=0)
        return [inner.Concat(places, x_then_y, axis=0), inner.Concat(scores, best, axis=0)]

    none = op.Expand(op.constant(0, DataType.INT64), op.shape([0, count, 2])), op.Expand(0.0, op.shape([0, count]))
    places, scores = emit_loop(op, step, *none, rounds=op.cast(op.sizes(rois)[0], DataType.INT64))
    scale = op.Div(extents, op.cast(whole, DataType.FLOAT))
    middles = op.Mul(op.Add(op.cast(places, DataType.FLOAT), 0.5), op.Unsqueeze(scale, [1]))
    points = op.Add(middles, op.Unsqueeze(corners, [1]))
    return op.Pad(points, [0, 0, 0, 0, 0, 1], 1.0), scores


@translates("torchvision::roi_align")
def torchvision_roi_align(
    op: Emitter,
    input: Value,
    rois: Value,
    spatial_scale: float,
    pooled_height: Size,
    pooled_width: Size,
    sampling_ratio: int,
    aligned: bool,
) -> Value:
    """Emits RoiAlign: the mean of bilinear samples in each bin of each region (image, x1, y1, x2, y2)."""
    features = widened(op, "RoiAlign", input)
    batch, corners = op.Split(rois, [1, 4], axis=1, outputs=2)
    corners = op.cast(corners, features.dtype or DataType.FLOAT)
    # The attribute spatial_scale is a float32, so float64 corners are scaled outside the node.
    if features.dtype == DataType.DOUBLE and spatial_scale != 1:
        corners, spatial_scale = op.Mul(corners, spatial_scale), 1.0
    pooled = op.RoiAlign(
        features,
        corners,
        op.cast(op.Squeeze(batch, [1]), DataType.INT64),
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
        mode="avg",
        output_height=pooled_height,
        output_width=pooled_width,
        sampling_ratio=max(sampling_ratio, 0),
        spatial_scale=spatial_scale,
    )
    return op.cast(pooled, op.out_dtype)


def _is_not_float64(input: Tensor) -> bool:
    return input.dtype != torch.float64


@translates("torchvision::roi_pool", supports=_is_not_float64)
def torchvision_roi_pool(
    op: Emitter, input: Value, rois: Value, spatial_scale: float, pooled_height: Size, pooled_width: Size
) -> Sequence[Value]:
    """Emits MaxRoiPool; ONNX does not return the indices of the maxima, so there is one result only."""
    return (op.MaxRoiPool(input, rois, pooled_shape=[pooled_height, pooled_width], spatial_scale=spatial_scale),)


@translates("torchvision::deform_conv2d", since=19)
def torchvision_deform_conv2d(
    op: Emitter, input: Value, weight: Value, offset: Value, mask: Value, bias: Value,
    stride_h: Size, stride_w: Size, pad_h: Size, pad_w: Size, dilation_h: Size, dilation_w: Size,
    groups: Size, offset_groups: Size, use_mask: bool,
) -> Value:  # fmt: skip
    """Emits DeformConv: each kernel element reads at its offset (y, x) and is multiplied by its mask."""
    input, weight, offset, bias = (widened(op, "DeformConv", value) for value in (input, weight, offset, bias))
    result = op.DeformConv(
        input,
        weight,
        offset,
        bias,
        widened(op, "DeformConv", mask) if use_mask else None,
        dilations=[dilation_h, dilation_w],
        group=groups,
        kernel_shape=op.sizes(weight)[2:],
        offset_group=offset_groups,
        pads=[pad_h, pad_w, pad_h, pad_w],
        strides=[stride_h, stride_w],
    )
    return op.cast(result, op.out_dtype)
