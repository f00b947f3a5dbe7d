"""torchvision's operators on boxes and regions of interest → ONNX."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from onnx_ir import DataType, Value
from torch import Tensor

from fx_onnx.core.symbolic_sizes import Size
from fx_onnx.core.translation_table import translates
from fx_onnx.ops._loop_node import emit_loop
from fx_onnx.ops._widening import widened
from fx_onnx.translation.emitter import Emitter


def _float32_threshold(number: float) -> float:
    """A float32 that another one exceeds exactly where it exceeds ``number``, which ONNX's float32 would round up.

    Raises:
        NotImplementedError: it is negative, which ONNX does not take.
    """
    if number < 0:
        raise NotImplementedError(f"ONNX NonMaxSuppression takes no negative iou_threshold, such as {number}.")
    nearest = np.float32(min(number, 1.0))
    return float(nearest if float(nearest) <= number else np.nextafter(nearest, np.float32(0)))


def _onnx_boxes(op: Emitter, boxes: Value) -> Value:
    """Boxes as ONNX takes them, (1, N, 4): it would swap corners, where torchvision sees no area.

    Such a box becomes one without area, which suppresses none and is suppressed by none, as in torchvision.
    """
    low, high = op.Split(boxes, axis=1, num_outputs=2, outputs=2)
    return op.unsqueeze(op.Concat(low, op.Max(low, high), axis=1), 0)


def _nan_as_infinity(op: Emitter, scores: Value) -> Value:
    """Scores with infinity for NaN, which torch sorts before every number."""
    return op.Where(op.IsNaN(scores), math.inf, scores)


def _as_float32(op: Emitter, *values: Value) -> list[Value]:
    """Values as ONNX takes them to suppress boxes, in float32.

    Raises:
        NotImplementedError: one is of float64, whose digits would be lost.
    """
    if any(value.dtype == DataType.DOUBLE for value in values):
        raise NotImplementedError("ONNX NonMaxSuppression takes no float64; call nms on boxes and scores in float32.")
    return [op.cast(value, DataType.FLOAT) for value in values]


@translates("torchvision::nms")
def torchvision_nms(op: Emitter, dets: Value, scores: Value, iou_threshold: float) -> Value:
    """The indices of boxes, by falling score, none of which overlaps one before by more than the threshold."""
    boxes, numbers = _as_float32(op, dets, scores)
    selected = op.NonMaxSuppression(
        _onnx_boxes(op, boxes),
        op.unsqueeze(_nan_as_infinity(op, numbers), 0, 1),
        op.shape(op.sizes(scores)),
        [_float32_threshold(iou_threshold)],
    )
    return op.squeeze(op.with_sizes(op.Gather(selected, [2], axis=1), (*op.out_sizes, 1)), 1)


# So many numbers in boxes are few to torchvision, which then moves the boxes of each class apart. (Its coordinates then
# have fewer digits, and so have the overlaps: that it does so shows in which boxes it keeps.)
_MAX_MOVED_ELEMENTS = 4000


def _offset_by_class(op: Emitter, boxes: Value, idxs: Value) -> Value:
    """Boxes as torchvision compares them: moved by their class times the largest coordinate, if they are few."""
    largest = op.ReduceMax(op.Concat(op.Reshape(boxes, [-1]), [-math.inf], axis=0), keepdims=0)
    offsets = op.Mul(op.cast(idxs, DataType.FLOAT), op.Add(largest, 1.0))
    few = op.LessOrEqual(op.Size(boxes), _MAX_MOVED_ELEMENTS)
    return op.Add(boxes, op.Unsqueeze(op.Where(few, offsets, 0.0), [1]))


def _scores_by_class(op: Emitter, scores: Value, idxs: Value) -> Value:
    """(1, classes, N): the scores of each class, -inf at boxes of others."""
    _, _, place, _ = op.Unique(idxs, sorted=0, outputs=4)
    classes = op.Range(0, op.Add(op.ReduceMax(op.Concat(place, [-1], axis=0), keepdims=0), 1), 1)
    own = op.Equal(op.Unsqueeze(classes, [1]), op.Unsqueeze(place, [0]))
    lowest = float(np.finfo(np.float32).min)
    return op.Unsqueeze(op.Where(own, op.Max(scores, lowest), -math.inf), [0])


def _sorted_by_score(op: Emitter, indices: Value, scores: Value) -> Value:
    """Indices by falling score, equal ones in the order of the indices."""
    count = op.Shape(indices)
    ordered, _ = op.TopK(indices, count, largest=0, outputs=2)
    _, order = op.TopK(op.Gather(scores, ordered), count, outputs=2)
    return op.Gather(ordered, order)


@translates("fx_onnx::batched_nms")
def fx_onnx_batched_nms(op: Emitter, boxes: Value, scores: Value, idxs: Value, iou_threshold: float) -> Value:
    """``nms`` among the boxes of each class, then all that are left by falling score."""
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
    """Where each heatmap, resized to its region by cubic interpolation, is largest, and how large it is there."""
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
        place = inner.ArgMax(flat, axis=2, keepdims=0)
        x_then_y = inner.Concat(
            *(inner.Unsqueeze(each, [2]) for each in (inner.Mod(place, width), inner.Div(place, width))), axis=2
        )
        best = inner.ReduceMax(flat, [2], keepdims=0)
        return [inner.Concat(places, x_then_y, axis=0), inner.Concat(scores, best, axis=0)]

    none = op.Expand(op.constant(0, DataType.INT64), op.shape([0, count, 2])), op.Expand(0.0, op.shape([0, count]))
    places, scores = emit_loop(op, step, *none, rounds=op.scalar(op.sizes(rois)[0], DataType.INT64))
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
    """The mean of bilinear samples in each bin of each region of interest (image, x1, y1, x2, y2)."""
    features = widened(op, "RoiAlign", input)
    batch, corners = op.Split(rois, [1, 4], axis=1, outputs=2)
    corners = op.cast(corners, features.dtype or DataType.FLOAT)
    if features.dtype == DataType.DOUBLE and spatial_scale != 1:  # ONNX's attribute is a float32
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


def _is_not_float64(input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: Size, pooled_width: Size) -> bool:
    return input.dtype != torch.float64


@translates("torchvision::roi_pool", supports=_is_not_float64)
def torchvision_roi_pool(
    op: Emitter, input: Value, rois: Value, spatial_scale: float, pooled_height: Size, pooled_width: Size
) -> Sequence[Value]:
    """The largest value in each bin of each region of interest; ONNX does not say where it is."""
    return (op.MaxRoiPool(input, rois, pooled_shape=[pooled_height, pooled_width], spatial_scale=spatial_scale),)


@translates("torchvision::deform_conv2d", since=19)
def torchvision_deform_conv2d(
    op: Emitter, input: Value, weight: Value, offset: Value, mask: Value, bias: Value,
    stride_h: Size, stride_w: Size, pad_h: Size, pad_w: Size, dilation_h: Size, dilation_w: Size,
    groups: Size, offset_groups: Size, use_mask: bool,
) -> Value:  # fmt: skip
    """A convolution each of whose taps reads where its offset (y, x) leads, times its mask."""
    result = op.DeformConv(
        *(widened(op, "DeformConv", value) for value in (input, weight, offset, bias)),
        widened(op, "DeformConv", mask) if use_mask else None,
        dilations=[dilation_h, dilation_w],
        group=groups,
        kernel_shape=op.sizes(weight)[2:],
        offset_group=offset_groups,
        pads=[pad_h, pad_w, pad_h, pad_w],
        strides=[stride_h, stride_w],
    )
    return op.cast(result, op.out_dtype)
