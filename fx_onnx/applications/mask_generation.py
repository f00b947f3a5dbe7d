"""The parts of SAM: ``vision_encoder``, and ``prompt_encoder_mask_decoder``, which runs for each prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_onnx.applications.inputs import example_inputs
from fx_onnx.applications.parts import Fields, Given, Part, graph
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId

__all__ = ["mask_generation"]


class _Embeddings(torch.nn.Module):
    """Computes the embeddings of images and of their positions."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model: Any = model

    def forward(self, pixel_values: Tensor) -> dict[str, Tensor]:
        """Returns both, (batch, size, height, width)."""
        images = self.model.get_image_embeddings(pixel_values)
        positions = self.model.get_image_wide_positional_embeddings()
        return {"image_embeddings": images, "image_positional_embeddings": positions.repeat(images.shape[0], 1, 1, 1)}


def mask_generation(model: Any, fields: Sequence[str], given: Given) -> list[Part]:
    """Returns the encoder of images, and the decoder of points.

    Raises:
        ArgumentError: the model is not of SAM's kind.
    """
    if not hasattr(model, "get_image_wide_positional_embeddings"):
        raise ArgumentError(
            f"The parts of {type(model).__name__} are not known; export them with fx_onnx.export.",
            id=MessageId.MODEL_SOURCE,
        )
    pixels, dims = example_inputs(model, {name: given[name] for name in given if name == "pixel_values"})
    images = graph("vision_encoder", _Embeddings(model), {"pixel_values": pixels["pixel_values"]}, dims)
    with torch.no_grad():
        embeddings = images.module(**images.kwargs)["image_embeddings"]
    height, width = pixels["pixel_values"].shape[2:]
    batch, points = len(embeddings), torch.rand(len(embeddings), 3, 2, 2) * torch.tensor([width, height])
    kwargs = {"image_embeddings": embeddings, "input_points": points, "input_labels": torch.ones(batch, 3, 2).long()}
    prompts = {0: "batch", 1: "prompts", 2: "points"}
    shapes = {"image_embeddings": {0: "batch"}, "input_points": prompts, "input_labels": prompts}
    return [images, graph("prompt_encoder_mask_decoder", Fields(model, fields, {}), kwargs, shapes)]
