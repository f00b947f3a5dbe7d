"""All models of torchvision, with random weights and small images: how to build, run and export each of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.torchvision_cpu import torchvision

models = torchvision.models
BATCH = {0: "batch"}
ANY_SIZE = {0: "batch", 2: "height", 3: "width"}


def picture(*sizes: int, seed: int = 0) -> Tensor:
    """Returns smooth random images (N, 3, ...), so that no two places look alike to a network."""
    coarse = torch.rand(*sizes[:2], *(8 for _ in sizes[2:]), generator=torch.Generator().manual_seed(seed))
    return F.interpolate(coarse, sizes[2:], mode="bilinear" if len(sizes) == 4 else "trilinear")


@dataclass(frozen=True)
class VisionModel:
    """A model of torchvision.

    Attributes:
        name: its name in torchvision.
        kind: classification, quantization, segmentation, video, optical_flow or detection.
        options: arguments of its builder.
        sizes: height and width of the images, after the number of frames for a video.
        shapes: the dynamic dims of its inputs.
        blocked: why torch.export cannot capture the model, so that no exporter can.
        is_shallow: whether it has one layer of each run of equal layers.
    """

    name: str
    kind: str
    options: dict[str, Any] = field(default_factory=dict)
    sizes: tuple[int, ...] = (64, 64)
    shapes: dict[int, str] = field(default_factory=lambda: BATCH)
    blocked: str = ""
    is_shallow: bool = False

    def build(self) -> nn.Module:
        """Returns the module in eval mode, the same at every call, with statistics of batch norms as after training."""
        torch.manual_seed(0)
        module: nn.Module = models.get_model(self.name, weights=None, **self.options)
        if self.is_shallow:
            remove_repeated_layers(module)
        with torch.no_grad():
            if self.kind == "detection":
                _spread_scores(module)
            else:
                calibrate(module, lambda: module(**self._inputs(module, 8, self.sizes, 3)))
        return module.eval()

    def examples(self, module: nn.Module) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the inputs for the export, and others, of other sizes if these are dynamic."""
        grown = tuple(size + 32 for size in self.sizes) if 2 in self.shapes else self.sizes
        if self.kind == "detection":
            first, second = picture(1, 3, *self.sizes, seed=1)[0], picture(1, 3, *self.sizes, seed=2)[0]
            return {"images": [first]}, {"images": [second]}
        return self._inputs(module, 2, self.sizes, 1), self._inputs(module, 3, grown, 2)

    def _inputs(self, module: nn.Module, batch: int, sizes: tuple[int, ...], seed: int) -> dict[str, Any]:
        first = picture(batch, 3, *sizes, seed=seed)
        if self.kind != "optical_flow":
            return {next(iter(inspect.signature(module.forward).parameters)): first}
        second = picture(batch, 3, *sizes, seed=seed + 10)
        return {"image1": first * 2 - 1, "image2": second * 2 - 1, "num_flow_updates": 2}

    def dynamic_shapes(self, inputs: dict[str, Any]) -> dict[str, Any] | None:
        """Returns the requested dynamic dims, by argument; None for a detector's images."""
        if self.kind == "detection":
            return None
        return {name: self.shapes if isinstance(value, Tensor) else None for name, value in inputs.items()}


def remove_repeated_layers(module: nn.Module) -> None:
    """Removes the layers that read the result of an equal layer: they export as that one does."""
    for part in [each for each in module.modules() if isinstance(each, (nn.Sequential, nn.ModuleDict))]:
        for (_, before), (name, layer) in pairwise(list(part.named_children())):
            if repr(layer) == repr(before):
                delattr(part, name)


def calibrate(module: nn.Module, run: Callable[[], Any]) -> None:
    """Sets the statistics of batch norms by a run: otherwise deep random networks give one result for all images.

    The weights of the norms are 0.5, so that differences from the images of that run do not grow from layer to layer.
    """
    module.eval()
    norms = [each for each in module.modules() if isinstance(each, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d))]
    for norm in norms:
        norm.momentum = None  # use the mean of all runs
        nn.init.constant_(norm.weight, 0.5)
        norm.train()
    if norms:
        run()
    module.eval()


_SCORES = re.compile(
    r"(cls_logits|cls_score|bbox_ctrness|kps_score_lowres|mask_fcn_logits|classification_head\.module_list\.\d+(\.1)?)$"
)


def _spread_scores(detector: Any) -> None:
    """Spreads a detector's scores: those of random weights are so close that rounding would decide their order."""
    images = picture(2, 3, 320, 320, seed=9) * 4 - 2
    calibrate(detector, lambda: detector.backbone(images))

    spread: set[nn.Module] = set()

    def spreads(layer: Any, args: tuple[Tensor], output: Tensor) -> Tensor:
        if layer not in spread:  # scale by the first level, which is the finest
            spread.add(layer)
            layer.weight.mul_(1 / output.std())
            layer.bias.zero_()
        result: Tensor = type(layer).forward(layer, *args)
        return result

    layers = [layer for name, layer in detector.named_modules() if _SCORES.search(name) and hasattr(layer, "weight")]
    handles = [layer.register_forward_hook(spreads) for layer in layers]
    detector([picture(1, 3, 96, 128, seed=9)[0]])
    for handle in handles:
        handle.remove()


def _detector(name: str) -> VisionModel:
    """Returns a detector with few detections: many could have scores so close that rounding decides their order."""
    options: dict[str, Any] = {"weights_backbone": None, "num_classes": 2 if "keypoint" in name else 5}
    if "rcnn" in name:
        options |= {"box_detections_per_img": 8, "box_score_thresh": 0.1}
    else:
        options |= {"detections_per_img": 8, "score_thresh": 0.3}
    if not name.startswith("ssd"):  # images of SSD have one size
        options |= {"min_size": 96, "max_size": 160}
    return VisionModel(name, "detection", options, (90, 120))


# Options of builders and sizes of images, for models that differ from their kind.
_OPTIONS: dict[str, dict[str, Any]] = {"googlenet": {"init_weights": False}, "inception_v3": {"init_weights": False}}
_SIZES: dict[str, tuple[int, ...]] = {
    "inception_v3": (192, 192), "quantized_inception_v3": (192, 192), "maxvit_t": (224, 224),
    "mvit_v1_b": (16, 224, 224), "mvit_v2_s": (16, 224, 224), "s3d": (16, 224, 224),
}  # fmt: skip


def _classifier(name: str) -> VisionModel:
    options = dict(_OPTIONS.get(name.removeprefix("quantized_"), {}))
    if name.startswith("vit_"):
        options["image_size"] = 56 if name == "vit_h_14" else 64
    sizes = (56, 56) if name == "vit_h_14" else _SIZES.get(name, (64, 64))
    return VisionModel(name, "quantization" if name.startswith("quantized_") else "classification", options, sizes)


def _table() -> list[VisionModel]:
    found = []
    for name in models.list_models():
        if name in models.list_models(models.detection):
            found.append(_detector(name))
        elif name in models.list_models(models.segmentation):
            found.append(VisionModel(name, "segmentation", {"weights_backbone": None}, shapes=ANY_SIZE))
        elif name in models.list_models(models.video):
            found.append(VisionModel(name, "video", sizes=_SIZES.get(name, (8, 64, 64))))
        elif name in models.list_models(models.optical_flow):
            found.append(VisionModel(name, "optical_flow", sizes=(128, 128)))
        else:
            found.append(_classifier(name))
    return found


VISION = _table()
