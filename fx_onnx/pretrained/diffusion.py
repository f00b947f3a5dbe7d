"""The parts of a pipeline of diffusers: text encoders, the UNet, and both halves of the autoencoder.

The names of inputs and outputs are those that optimum-onnx gives its own exports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim

from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.messages import MessageId
from fx_onnx.pretrained.parts import Given, Part, graph

__all__ = ["diffusion"]

_BATCH, _ROWS, _COLUMNS, _TOKENS = 2, 3, 2, 5
_IMAGE = {0: "batch", 2: "height", 3: "width"}


class _Call(torch.nn.Module):
    """Calls a function of a model, whose results get names."""

    def __init__(self, model: torch.nn.Module, run: Callable[..., dict[str, Tensor]]) -> None:
        super().__init__()
        self.model, self.run = model, run

    def forward(self, **inputs: Tensor) -> dict[str, Tensor]:
        """Runs the model."""
        return self.run(self.model, **inputs)


def diffusion(pipeline: Any, fields: Sequence[str], given: Given) -> list[Part]:
    """Returns the parts of a pipeline.

    Raises:
        ArgumentError: the pipeline has no UNet.
    """
    found = [part for name in ("text_encoder", "text_encoder_2") for part in _text(pipeline, name)]
    if getattr(pipeline, "unet", None) is None:
        raise ArgumentError(
            f"{type(pipeline).__name__} has no UNet; export its parts with fx_onnx.export.", id=MessageId.MODEL_SOURCE
        )
    last = getattr(pipeline, "text_encoder_2", None)
    found.append(_unet(pipeline.unet, 0 if last is None else getattr(last.config, "projection_dim", 0)))
    return [*found, *_vae(pipeline.vae)]


def _text(pipeline: Any, name: str) -> Iterator[Part]:
    """Yields the part of a text encoder, which returns the states of all layers too."""
    model = getattr(pipeline, name, None)
    if model is None:
        return

    def run(model: Any, input_ids: Tensor) -> dict[str, Tensor]:
        result = model(input_ids=input_ids, output_hidden_states=True, return_dict=True)
        states = dict(result)
        layers = states.pop("hidden_states")[:-1]
        return {**states, **{f"hidden_states.{place}": layer for place, layer in enumerate(layers)}}

    ids = torch.randint(0, model.config.vocab_size, (_BATCH, _TOKENS))
    yield graph(name, _Call(model, run), {"input_ids": ids}, {"input_ids": {0: "batch", 1: "sequence"}})


def _unet(model: Any, pooled: int) -> Part:
    """Returns the part of a UNet. Height and width are multiples of the factor by which it reduces them.

    Args:
        model: the UNet.
        pooled: the size of the embedding of a whole text, for a UNet that takes it.
    """
    config, factor = model.config, 2**model.num_upsamplers
    conditions = ("text_embeds", "time_ids")

    def run(model: Any, sample: Tensor, timestep: Tensor, encoder_hidden_states: Tensor, **more: Tensor) -> Any:
        added = {name: more.pop(name) for name in conditions if name in more}
        result = model(sample, timestep, encoder_hidden_states, added_cond_kwargs=added or None, **more)
        return {"out_sample": result.sample}

    size = config.cross_attention_dim
    size = size if isinstance(size, int) else size[0]
    kwargs = {
        "sample": torch.randn(_BATCH, config.in_channels, factor * _ROWS, factor * _COLUMNS),
        "timestep": torch.tensor(10.0),
        "encoder_hidden_states": torch.randn(_BATCH, _TOKENS, size),
    }
    shapes: dict[str, Any] = {
        "sample": {0: "batch", 2: factor * Dim("rows"), 3: factor * Dim("columns")},
        "timestep": None,
        "encoder_hidden_states": {0: "batch", 1: "sequence"},
    }
    if config.time_cond_proj_dim is not None:
        kwargs["timestep_cond"] = torch.randn(_BATCH, config.time_cond_proj_dim)
    if config.addition_embed_type == "text_time":
        numbers = (config.projection_class_embeddings_input_dim - pooled) // config.addition_time_embed_dim
        kwargs["text_embeds"], kwargs["time_ids"] = torch.randn(_BATCH, pooled), torch.randn(_BATCH, numbers)
    return graph("unet", _Call(model, run), kwargs, {**{name: {0: "batch"} for name in kwargs}, **shapes})


def _vae(model: Any) -> Iterator[Part]:
    """Yields both halves of the autoencoder."""

    def encode(model: Any, sample: Tensor) -> dict[str, Tensor]:
        return {"latent_parameters": model.encode(sample).latent_dist.parameters}

    def decode(model: Any, latent_sample: Tensor) -> dict[str, Tensor]:
        return {"sample": model.decode(latent_sample).sample}

    factor, config = 2 ** (len(model.config.block_out_channels) - 1), model.config
    image = torch.rand(_BATCH, config.in_channels, factor * _ROWS, factor * _COLUMNS)
    pixels = {0: "batch", 2: factor * Dim("rows"), 3: factor * Dim("columns")}
    yield graph("vae_encoder", _Call(model, encode), {"sample": image}, {"sample": pixels})
    latent = torch.randn(_BATCH, config.latent_channels, _ROWS, _COLUMNS)
    yield graph("vae_decoder", _Call(model, decode), {"latent_sample": latent}, {"latent_sample": dict(_IMAGE)})
