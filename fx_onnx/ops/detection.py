"""torchvision's operators on boxes and regions of interest → ONNX."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from onnx_ir import DataType, Value
from torch import Tensor

from fx_onnx.emitter import Emitter
from fx_onnx.ops._common import admitted
from fx_onnx.symbols import Size
from fx_onnx.table import translates


def _threshold(number: float) -> float:
    """A float32 that another one exceeds exactly where it exceeds ``number``, which ONNX's float32 would round up.

    Raises:
        NotImplementedError: it is negative, which ONNX does not take.
    """
    if number < 0:
        raise NotImplementedError(f"ONNX NonMaxSuppression takes no negative iou_threshold, such as {number}.")
    nearest = np.float32(min(number, 1.0))
    return float(nearest if float(nearest) <= number else np.nextafter(nearest, np.float32(0)))


def _corners(op: Emitter, boxes: Value) -> Value:
    """Boxes as ONNX takes them, (1, N, 4): it would swap corners, where torchvision sees no area.

    Such a box becomes one without area, which suppresses none and is suppressed by none, as in torchvision.
    """
    low, high = op.Split(boxes, axis=1, num_outputs=2, outputs=2)
    return op.unsqueeze(op.Concat(low, op.Max(low, high), axis=1), 0)


def _numbers(op: Emitter, scores: Value) -> Value:
    """Scores with infinity for NaN, which torch sorts before every number."""
    return op.Where(op.IsNaN(scores), math.inf, scores)


def _single(op: Emitter, *values: Value) -> list[Value]:
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
    boxes, numbers = _single(op, dets, scores)
    selected = op.NonMaxSuppression(
        _corners(op, boxes),
        op.unsqueeze(_numbers(op, numbers), 0, 1),
        op.shape(op.sizes(scores)),
        [_threshold(iou_threshold)],
    )
    return op.squeeze(op.with_sizes(op.Gather(selected, [2], axis=1), (*op.out_sizes, 1)), 1)


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
    features = admitted(op, "RoiAlign", input)
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


def _is_single(input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: Size, pooled_width: Size) -> bool:
    return input.dtype != torch.float64


@translates("torchvision::roi_pool", when=_is_single)
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
        *(admitted(op, "DeformConv", value) for value in (input, weight, offset, bias)),
        admitted(op, "DeformConv", mask) if use_mask else None,
        dilations=[dilation_h, dilation_w],
        group=groups,
        kernel_shape=op.sizes(weight)[2:],
        offset_group=offset_groups,
        pads=[pad_h, pad_w, pad_h, pad_w],
        strides=[stride_h, stride_w],
    )
    return op.cast(result, op.out_dtype)
