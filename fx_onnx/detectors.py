"""What stands for functions of torchvision's detection models while torch captures them.

These functions ask torch how many boxes there are, or go through them one by one, which only values can answer. Each is
replaced, while a model is captured, by one that computes the same for any number of boxes: in plain torch, or as an
operator of our own where each box needs a size of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

import fx_onnx.operators  # noqa: F401  creates the library of our operators, of which this is a part
from fx_onnx.stand_ins import standing_in

__all__ = ["any_number_of_boxes"]

_BOXES, _HEADS = "torchvision.ops.boxes", "torchvision.models.detection.roi_heads"

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


def any_number_of_boxes() -> AbstractContextManager[None]:
    """Replaces the functions for as long as this lasts; there are none where torchvision was not imported."""
    return standing_in(_STAND_INS)


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
    padded = torch.nn.functional.pad(masks, (padding,) * 4)
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


_STAND_INS: dict[tuple[str, str], Callable[..., Any]] = {
    (_BOXES, "batched_nms"): _batched_nms,
    ("torchvision.models.detection._utils", "BoxCoder.decode"): _decode,
    (_HEADS, "heatmaps_to_keypoints"): _heatmaps_to_keypoints,
    (_HEADS, "paste_masks_in_image"): _paste_masks_in_image,
}
