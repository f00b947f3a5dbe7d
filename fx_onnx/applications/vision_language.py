"""The parts of a decoder that reads images: ``vision_encoder``, ``embed_tokens`` and ``decoder_model_merged``.

The application puts the features of the images into the embeddings of their placeholder tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_onnx.applications.encoder_decoder import encoder_decoder
from fx_onnx.applications.inputs import example_inputs
from fx_onnx.applications.parts import Features, Given, Part, decoder_arguments, graph

__all__ = ["image_text_to_text"]


class _Embeddings(torch.nn.Module):
    """Computes the embeddings of tokens."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.embeddings = model.get_input_embeddings()

    def forward(self, input_ids: Tensor) -> dict[str, Tensor]:
        """int64 (batch, sequence) to (batch, sequence, size)."""
        return {"inputs_embeds": self.embeddings(input_ids)}


def image_text_to_text(model: Any, fields: Sequence[str], given: Given) -> list[Part]:
    """Returns the parts of a decoder that reads images; those of an encoder and a decoder if the model has both."""
    if model.config.is_encoder_decoder:
        return encoder_decoder(model, fields, given)
    images = Features(model, "get_image_features", "image_features", as_rows=True)
    vision = graph("vision_encoder", images, *example_inputs(model, given, model.get_image_features))
    kwargs, shapes, present = decoder_arguments(model)
    ids, rows = kwargs.pop("input_ids"), shapes.pop("input_ids")
    tokens = graph("embed_tokens", _Embeddings(model), {"input_ids": ids}, {"input_ids": rows})
    with torch.no_grad():
        kwargs = {"inputs_embeds": tokens.module(ids)["inputs_embeds"], **kwargs}
    shapes = {"inputs_embeds": rows, **shapes}
    return [vision, tokens, Part("decoder_model_merged", model, kwargs, shapes, (*fields, *present))]
