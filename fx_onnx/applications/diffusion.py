"""The parts of a pipeline of diffusers: text encoders, the UNet or transformer, and both halves of the autoencoder.

The names of inputs and outputs are those that optimum-onnx gives its own exports. Height and width are dynamic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim

from fx_onnx.applications.inputs import parameters_of
from fx_onnx.applications.parts import Given, Part, graph
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId

__all__ = ["diffusion"]

_BATCH, _ROWS, _COLUMNS, _TOKENS = 2, 3, 2, 5
_PER_IMAGE = {0: "batch"}
_PER_TOKEN = {0: "batch", 1: "sequence"}
_Inputs = dict[str, tuple[Tensor, Any]]
"""The name of an input → its example and its dynamic dims."""


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
        ArgumentError: the pipeline has neither a UNet nor a transformer that is known.
    """
    models = {name: getattr(pipeline, name, None) for name in _COMPONENTS}
    if models["unet"] is None and models["transformer"] is None:
        raise ArgumentError(
            f"{type(pipeline).__name__} has neither a UNet nor a transformer; export its parts with fx_onnx.export.",
            id=MessageId.MODEL_SOURCE,
        )
    return [part for name, model in models.items() if model is not None for part in _COMPONENTS[name](name, models)]


def _part(name: str, model: Any, run: Callable[..., dict[str, Tensor]], inputs: _Inputs) -> Part:
    kwargs = {key: example for key, (example, _) in inputs.items()}
    return graph(name, _Call(model, run), kwargs, {key: dims for key, (_, dims) in inputs.items()})


def _image(channels: int, factor: int) -> tuple[Tensor, Any]:
    """Returns an example of an image whose height and width are multiples of a factor, and its dynamic dims."""
    example = torch.randn(_BATCH, channels, factor * _ROWS, factor * _COLUMNS)
    return example, {0: "batch", 2: factor * Dim("rows"), 3: factor * Dim("columns")}


def _text(name: str, models: dict[str, Any]) -> Iterator[Part]:
    """Yields the part of a text encoder, which returns the states of all layers too."""

    def run(model: Any, input_ids: Tensor) -> dict[str, Tensor]:
        states = dict(model(input_ids=input_ids, output_hidden_states=True, return_dict=True))
        layers = states.pop("hidden_states")[:-1]
        return {**states, **{f"hidden_states.{index}": layer for index, layer in enumerate(layers)}}

    ids = torch.randint(0, models[name].config.vocab_size, (_BATCH, _TOKENS))
    yield _part(name, models[name], run, {"input_ids": (ids, _PER_TOKEN)})


def _unet(name: str, models: dict[str, Any]) -> Iterator[Part]:
    """Yields the part of a UNet. Height and width are multiples of the factor by which it reduces them."""
    model, last = models[name], models["text_encoder_2"]
    config, added = model.config, ("text_embeds", "time_ids")

    def run(model: Any, sample: Tensor, timestep: Tensor, encoder_hidden_states: Tensor, **more: Tensor) -> Any:
        conditions = {key: more.pop(key) for key in added if key in more}
        result = model(sample, timestep, encoder_hidden_states, added_cond_kwargs=conditions or None, **more)
        return {"out_sample": result.sample}

    size = config.cross_attention_dim
    inputs: _Inputs = {
        "sample": _image(config.in_channels, 2**model.num_upsamplers),
        "timestep": (torch.tensor(10.0), None),
        "encoder_hidden_states": (
            torch.randn(_BATCH, _TOKENS, size if isinstance(size, int) else size[0]), _PER_TOKEN
        ),
    }  # fmt: skip
    if config.time_cond_proj_dim is not None:
        inputs["timestep_cond"] = (torch.randn(_BATCH, config.time_cond_proj_dim), _PER_IMAGE)
    if config.addition_embed_type == "text_time":
        pooled = last.config.projection_dim
        numbers = (config.projection_class_embeddings_input_dim - pooled) // config.addition_time_embed_dim
        inputs |= {
            key: (torch.randn(_BATCH, width), _PER_IMAGE) for key, width in zip(added, (pooled, numbers), strict=True)
        }
    yield _part(name, model, run, inputs)


def _transformer(name: str, models: dict[str, Any]) -> Iterator[Part]:
    """Yields the part of a transformer that reads images, as in Stable Diffusion 3, or their patches, as in Flux.

    Raises:
        ArgumentError: it has no embedding of a whole text, so its inputs are not known.
    """
    model, config, parameters = models[name], models[name].config, parameters_of(models[name].forward)
    if "pooled_projections" not in parameters:
        raise ArgumentError(
            f"The inputs of {type(model).__name__} are not known, because it takes no pooled_projections; export it "
            "with fx_onnx.export.",
            id=MessageId.MODEL_SOURCE,
        )

    def run(model: Any, **inputs: Tensor) -> dict[str, Tensor]:
        return {"out_hidden_states": model(**inputs, return_dict=True).sample}

    patches = _ROWS * _COLUMNS
    inputs: _Inputs = {
        "hidden_states": _image(config.in_channels, config.patch_size),
        "encoder_hidden_states": (torch.randn(_BATCH, _TOKENS, config.joint_attention_dim), _PER_TOKEN),
        "pooled_projections": (torch.randn(_BATCH, config.pooled_projection_dim), _PER_IMAGE),
        "timestep": (torch.full((_BATCH,), 0.5), _PER_IMAGE),
    }
    if "img_ids" in parameters:
        inputs |= {
            "hidden_states": (torch.randn(_BATCH, patches, config.in_channels), {0: "batch", 1: "patches"}),
            "img_ids": (torch.randint(0, 9, (patches, 3)).float(), {0: "patches"}),
            "txt_ids": (torch.zeros(_TOKENS, 3), {0: "sequence"}),
        }
    if getattr(config, "guidance_embeds", False):
        inputs["guidance"] = (torch.full((_BATCH,), 3.5), _PER_IMAGE)
    yield _part(name, model, run, inputs)


def _vae(name: str, models: dict[str, Any]) -> Iterator[Part]:
    """Yields both halves of the autoencoder."""
    model, config = models[name], models[name].config

    def encode(model: Any, sample: Tensor) -> dict[str, Tensor]:
        return {"latent_parameters": model.encode(sample).latent_dist.parameters}

    def decode(model: Any, latent_sample: Tensor) -> dict[str, Tensor]:
        return {"sample": model.decode(latent_sample).sample}

    factor = 2 ** (len(config.block_out_channels) - 1)
    yield _part("vae_encoder", model, encode, {"sample": _image(config.in_channels, factor)})
    yield _part("vae_decoder", model, decode, {"latent_sample": _image(config.latent_channels, 1)})


_COMPONENTS: dict[str, Callable[[str, dict[str, Any]], Iterator[Part]]] = {
    **dict.fromkeys(("text_encoder", "text_encoder_2", "text_encoder_3"), _text),
    "unet": _unet,
    "transformer": _transformer,
    "vae": _vae,
}
"""The name of a component of a pipeline → what yields its parts from this name and all components."""
