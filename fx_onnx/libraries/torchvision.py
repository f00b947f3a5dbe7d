"""Replacements in libraries of vision models.

The functions of torchvision's detection models branch on the number of boxes, loop over the boxes, or convert the sizes
of the images to Python numbers. The replacements compute the same for any number of boxes and for images of any size.
Most of them use torch's operators. Where an intermediate result has another size for each box, the replacement is a
custom operator.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from fx_onnx.capture.patches.patching import Around, Patch
from fx_onnx.torch_internals.custom_ops import define_operator
from fx_onnx.torch_internals.guard_private import example_size

__all__ = ["PATCHES"]

_BOXES, _POOLERS = "torchvision.ops.boxes", "torchvision.ops.poolers"
_HEADS, _UTILS, _TRANSFORM = (f"torchvision.models.detection.{name}" for name in ("roi_heads", "_utils", "transform"))


def _eager_kernel(module: str, name: str) -> Callable[..., Any]:
    """Returns a kernel for real tensors that calls torchvision's original function, also while a patch replaces it."""

    def kernel(*args: Any) -> Any:
        function = getattr(sys.modules[module], name)
        return getattr(function, "original", function)(*args)

    return kernel


@cache
def _batched_nms() -> Any:
    """Returns the operator that replaces ``batched_nms``."""

    def infer_sizes(boxes: Tensor, *_: Any) -> Tensor:
        return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)

    torch.library.register_fake("fx_onnx::batched_nms", infer_sizes)
    return torch.ops.fx_onnx.batched_nms


def _heatmaps_to_keypoints_fake(maps: Tensor, rois: Tensor) -> tuple[Tensor, Tensor]:
    size = maps.shape[:2]
    return maps.new_empty((*size, 3), dtype=torch.float32), maps.new_empty(size, dtype=torch.float32)


define_operator(
    "batched_nms(Tensor boxes, Tensor scores, Tensor idxs, float iou_threshold) -> Tensor",
    _eager_kernel(_BOXES, "batched_nms"),
    None,
)
define_operator(
    "heatmaps_to_keypoints(Tensor maps, Tensor rois) -> (Tensor, Tensor)",
    _eager_kernel(_HEADS, "heatmaps_to_keypoints"),
    _heatmaps_to_keypoints_fake,
)


def _decode(self: Any, rel_codes: Tensor, boxes: list[Tensor]) -> Tensor:
    """Replaces ``BoxCoder.decode``, which branches on whether there are boxes; returns (K, classes, 4)."""
    decoded: Tensor = self.decode_single(rel_codes.flatten(1), torch.cat(boxes)).unflatten(1, (-1, 4))
    return decoded


def _paste_masks_in_image(masks: Tensor, boxes: Tensor, img_shape: tuple[int, int], padding: int = 1) -> Tensor:
    """Replaces ``paste_masks_in_image``, which loops over the boxes; returns (K, 1, H, W).

    Each mask is resized to its box within an empty image, as a product with one matrix of weights for each axis.
    """
    padded = pad(masks, (padding,) * 4)
    before, after = masks.shape[-1], padded.shape[-1]
    centers, halves = (boxes[:, :2] + boxes[:, 2:]) * 0.5, (boxes[:, 2:] - boxes[:, :2]) * 0.5 * (after / before)
    (x1, y1), (x2, y2) = ((centers + side * halves).to(torch.int64).unbind(1) for side in (-1, 1))
    rows = _resize_weights(y1, y2, after, img_shape[0]).to(masks.dtype)
    columns = _resize_weights(x1, x2, after, img_shape[1]).to(masks.dtype)
    pasted: Tensor = rows @ padded[:, 0] @ columns.transpose(1, 2)
    return pasted.unsqueeze(1)


def _resize_weights(first: Tensor, last: Tensor, size: int, count: int) -> Tensor:
    """Returns weights (K, count, size) that resize ``size`` pixels to the range first...last of ``count`` pixels.

    The weights are those of bilinear interpolation along one axis; pixels outside the range get zeros.
    """
    extent = (last - first + 1).clamp(min=1).unsqueeze(1)
    position = torch.arange(count, device=first.device) - first.unsqueeze(1)
    source = ((position + 0.5) * (size / extent) - 0.5).clamp(min=0)
    low = source.floor().clamp(max=size - 1)
    fraction = (source - low).unsqueeze(2)
    pixels = torch.arange(size, device=first.device)
    high = (low + 1).clamp(max=size - 1)
    weights = (low.unsqueeze(2) == pixels) * (1 - fraction) + (high.unsqueeze(2) == pixels) * fraction
    within = (position >= 0) & (position < extent)
    return torch.where(within.unsqueeze(2), weights, 0.0)


def _topk_min(input: Tensor, orig_kval: int, axis: int) -> Any:
    """Replaces ``_topk_min``: the smaller of ``orig_kval`` and the size of the axis."""
    return torch.sym_min(orig_kval, input.shape[axis])


# --- images of any size -----------------------------------------------------------------------------------------------


def _resize_image_and_masks(
    image: Tensor, self_min_size: int, self_max_size: int, target: Any = None, fixed_size: Any = None
) -> tuple[Tensor, Any]:
    """Replaces ``_resize_image_and_masks``.

    The shorter side of the image becomes ``self_min_size``. If the longer side would then exceed ``self_max_size``, it
    becomes ``self_max_size`` instead.
    """
    height, width = image.shape[-2:]
    if fixed_size is not None:
        size = [fixed_size[1], fixed_size[0]]
    else:
        shorter, longer = torch.sym_min(height, width), torch.sym_max(height, width)
        scale = torch.sym_min(self_min_size / shorter, self_max_size / longer)
        size = [torch.sym_int(side * scale) for side in (height, width)]
    if target is not None and "masks" in target:
        target["masks"] = interpolate(target["masks"][:, None].float(), size)[:, 0].byte()
    return interpolate(image[None], size, mode="bilinear")[0], target


def _batch_images(self: Any, images: list[Tensor], size_divisible: int = 32) -> Tensor:
    """Replaces ``GeneralizedRCNNTransform.batch_images``.

    Each image is padded with zeros at the bottom and on the right, to a common size that is divisible by
    ``size_divisible``.
    """
    largest = list(images[0].shape)
    for image in images[1:]:
        largest = [torch.sym_max(one, other) for one, other in zip(largest, image.shape, strict=True)]
    largest[1:] = [-(-size // size_divisible) * size_divisible for size in largest[1:]]
    missing = [[largest[side] - image.shape[side] for side in (2, 1, 0)] for image in images]
    return torch.stack([pad(image, (0, x, 0, y, 0, z)) for image, (x, y, z) in zip(images, missing, strict=True)])


def _setup_scales(
    features: list[Tensor], image_shapes: list[Any], canonical_scale: int, canonical_level: int
) -> tuple[list[float], Any]:
    """Replaces ``MultiScaleRoIAlign``'s computation of its scales.

    The original computes them from the first images and keeps them for all later ones. Here the first images are the
    example.
    """
    height = max(example_size(shape[0]) for shape in image_shapes)
    scales = [2.0 ** round(math.log2(example_size(feature.shape[-2]) / height)) for feature in features]
    levels = [-int(math.log2(scale)) for scale in (scales[0], scales[-1])]
    return scales, sys.modules[_POOLERS].initLevelMapper(*levels, canonical_scale, canonical_level)


_BRANCHES = "The original branches on the number of boxes, or loops over them."
_FIXES = "The original converts the sizes of the images to Python numbers."
PATCHES = (
    Patch(f"{_BOXES}:batched_nms", Around(lambda _: _batched_nms()), _BRANCHES),
    Patch(f"{_UTILS}:BoxCoder.decode", _decode, _BRANCHES),
    Patch(f"{_UTILS}:_topk_min", _topk_min, _FIXES),
    Patch(f"{_HEADS}:heatmaps_to_keypoints", torch.ops.fx_onnx.heatmaps_to_keypoints, _BRANCHES),
    Patch(f"{_HEADS}:paste_masks_in_image", _paste_masks_in_image, _BRANCHES),
    Patch(f"{_TRANSFORM}:_resize_image_and_masks", _resize_image_and_masks, _FIXES),
    Patch(f"{_TRANSFORM}:GeneralizedRCNNTransform.batch_images", _batch_images, _FIXES),
    Patch(f"{_POOLERS}:_setup_scales", _setup_scales, _FIXES),
    Patch(
        "fastai.layers:ToTensorBase.forward",
        lambda self, x: x,  # it converts to a subclass that keeps Python attributes and computes what Tensor computes
        "torch cannot convert the fake tensors of a capture to a subclass.",
    ),
)
"""The replacements in torchvision and fastai."""
