"""What stands for functions of torchvision's detection models while torch captures them.

These functions ask torch how many boxes there are, or go through them one by one, which only values can answer; others
make plain numbers of the sizes of the images. Each is replaced, while a model is captured, by one that computes the
same for any number of boxes and images of any size: in plain torch, or as an operator of our own where each box needs a
size of its own.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

import fx_onnx.core.custom_ops  # noqa: F401  creates the library of our operators, of which this is a part
from fx_onnx.capture.patches.patching import Patches
from fx_onnx.core.torch_private import optimization_hint

__all__ = ["PATCHES"]

_BOXES, _POOLERS = "torchvision.ops.boxes", "torchvision.ops.poolers"
_HEADS, _UTILS, _TRANSFORM = (f"torchvision.models.detection.{name}" for name in ("roi_heads", "_utils", "transform"))

_LIBRARY = torch.library.Library("fx_onnx", "FRAGMENT")  # lives as long as its operators
_LIBRARY.define("batched_nms(Tensor boxes, Tensor scores, Tensor idxs, float iou_threshold) -> Tensor")
_LIBRARY.define("heatmaps_to_keypoints(Tensor maps, Tensor rois) -> (Tensor, Tensor)")


def _of_torchvision(module: str, name: str) -> Callable[..., Any]:
    """A kernel: torchvision's own function, for tensors that have values."""
    return lambda *args: getattr(sys.modules[module], name)(*args)


def _kept(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def _keypoints(maps: Tensor, rois: Tensor) -> tuple[Tensor, Tensor]:
    size = maps.shape[:2]
    return maps.new_empty((*size, 3), dtype=torch.float32), maps.new_empty(size, dtype=torch.float32)


for _module, _name, _sizes in ((_BOXES, "batched_nms", _kept), (_HEADS, "heatmaps_to_keypoints", _keypoints)):
    _LIBRARY.impl(_name, _of_torchvision(_module, _name), "CompositeExplicitAutograd")
    torch.library.register_fake(f"fx_onnx::{_name}", _sizes, lib=_LIBRARY)


def _batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """``torchvision.ops.batched_nms``, which takes another way for more than 1000 boxes, and for none."""
    kept: Tensor = torch.ops.fx_onnx.batched_nms(boxes, scores, idxs, iou_threshold)
    return kept


def _heatmaps_to_keypoints(maps: Tensor, rois: Tensor) -> tuple[Tensor, Tensor]:
    """Where each heatmap, resized to its region, is largest, as (K, N, 3); and how large, as (K, N)."""
    points, scores = torch.ops.fx_onnx.heatmaps_to_keypoints(maps, rois)
    return points, scores


def _decode(self: Any, rel_codes: Tensor, boxes: list[Tensor]) -> Tensor:
    """``BoxCoder.decode``, whose reshapes leave out the case of no boxes: (K, classes, 4)."""
    decoded: Tensor = self.decode_single(rel_codes.flatten(1), torch.cat(boxes)).unflatten(1, (-1, 4))
    return decoded


def _paste_masks_in_image(masks: Tensor, boxes: Tensor, img_shape: tuple[int, int], padding: int = 1) -> Tensor:
    """Each mask resized to its box in an empty image, (K, 1, H, W): a product with the weights of both its axes."""
    padded = pad(masks, (padding,) * 4)
    before, after = masks.shape[-1], padded.shape[-1]
    centers, halves = (boxes[:, :2] + boxes[:, 2:]) * 0.5, (boxes[:, 2:] - boxes[:, :2]) * 0.5 * (after / before)
    (x1, y1), (x2, y2) = ((centers + side * halves).to(torch.int64).unbind(1) for side in (-1, 1))
    rows = _resizing(y1, y2, after, img_shape[0]).to(masks.dtype)
    columns = _resizing(x1, x2, after, img_shape[1]).to(masks.dtype)
    pasted: Tensor = rows @ padded[:, 0] @ columns.transpose(1, 2)
    return pasted.unsqueeze(1)


def _resizing(first: Tensor, last: Tensor, size: int, count: int) -> Tensor:
    """(K, count, size): the weights of ``size`` pixels, resized to first...last, in each of ``count`` pixels."""
    extent = (last - first + 1).clamp(min=1).unsqueeze(1)
    place = torch.arange(count, device=first.device) - first.unsqueeze(1)
    source = ((place + 0.5) * (size / extent) - 0.5).clamp(min=0)
    low = source.floor().clamp(max=size - 1)
    rest = (source - low).unsqueeze(2)
    pixels = torch.arange(size, device=first.device)
    here = (low.unsqueeze(2) == pixels) * (1 - rest) + ((low + 1).clamp(max=size - 1).unsqueeze(2) == pixels) * rest
    within = (place >= 0) & (place < extent)
    return torch.where(within.unsqueeze(2), here, 0.0)


def _topk_min(input: Tensor, orig_kval: int, axis: int) -> Any:
    """``orig_kval``, or the size of the axis where that is smaller."""
    return torch.sym_min(orig_kval, input.shape[axis])


# --- images of any size -----------------------------------------------------------------------------------------------


def _resize_image_and_masks(
    image: Tensor, self_min_size: int, self_max_size: int, target: Any = None, fixed_size: Any = None
) -> tuple[Tensor, Any]:
    """The image, its shorter side of ``self_min_size``, unless that made the longer one exceed ``self_max_size``."""
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
    """``GeneralizedRCNNTransform.batch_images``: each with zeros below and beside it, up to whole blocks of 32."""
    largest = list(images[0].shape)
    for image in images[1:]:
        largest = [torch.sym_max(one, other) for one, other in zip(largest, image.shape, strict=True)]
    largest[1:] = [-(-size // size_divisible) * size_divisible for size in largest[1:]]
    return torch.stack([_padded(image, largest) for image in images])


def _padded(image: Tensor, sizes: list[Any]) -> Tensor:
    missing = [after for side in (2, 1, 0) for after in (0, sizes[side] - image.shape[side])]
    return pad(image, missing)


def _setup_scales(
    features: list[Tensor], image_shapes: list[Any], canonical_scale: int, canonical_level: int
) -> tuple[list[float], Any]:
    """What ``MultiScaleRoIAlign`` finds from the first images it sees, here the example, and keeps for all others."""
    height = max(optimization_hint(shape[0]) for shape in image_shapes)
    scales = [2.0 ** round(math.log2(optimization_hint(feature.shape[-2]) / height)) for feature in features]
    levels = [-int(math.log2(scale)) for scale in (scales[0], scales[-1])]
    return scales, sys.modules[_POOLERS].initLevelMapper(*levels, canonical_scale, canonical_level)


PATCHES: Patches = {
    (_BOXES, "batched_nms"): _batched_nms,
    (_UTILS, "BoxCoder.decode"): _decode,
    (_UTILS, "_topk_min"): _topk_min,
    (_HEADS, "heatmaps_to_keypoints"): _heatmaps_to_keypoints,
    (_HEADS, "paste_masks_in_image"): _paste_masks_in_image,
    (_TRANSFORM, "_resize_image_and_masks"): _resize_image_and_masks,
    (_TRANSFORM, "GeneralizedRCNNTransform.batch_images"): _batch_images,
    (_POOLERS, "_setup_scales"): _setup_scales,
}
