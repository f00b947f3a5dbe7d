"""The parts of a decoder that reads images, as onnxruntime-genai runs them: ``vision``, ``embedding`` and ``decoder``.

onnxruntime-genai knows families by name: the operations on an image, the tokens that it puts into the prompt, and the
inputs of ``vision`` differ. ``FAMILIES`` has those that transformers has too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor, nn
from torch.nn import functional

from fx_onnx.applications.genai.image_modules import ImageOfAnySize, PlacedPatches, SquaresOfPatches
from fx_onnx.applications.genai.sound_modules import FramesOfSound
from fx_onnx.applications.parts import Features, Part, graph
from fx_onnx.applications.text_generation import takes_padding, text_generation_arguments
from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId

__all__ = ["FAMILIES", "Family", "images_and_text", "take_any_rank"]


@dataclass(frozen=True)
class Family:
    """A family of models that onnxruntime-genai knows.

    Attributes:
        kind: its name in onnxruntime-genai.
        vision: the module that computes the features of images.
        examples: returns the inputs of this module, from the config of the model.
        dims: their dynamic dims.
        bidirectional: returns the kinds of layers in which the tokens of an image see each other, also the later ones.
        position_axes: whether a token has positions for frames, rows and columns.
        speech: the module that computes the features of a sound, for models with an encoder of sounds.
        padding: the keys of the tokens whose own embeddings are not read, but those of padding.
    """

    kind: str
    vision: Callable[[Any], nn.Module]
    examples: Callable[[Any], dict[str, Tensor]]
    dims: Mapping[str, Mapping[int, str]]
    bidirectional: Callable[[Any], tuple[str, ...]] = lambda _: ()
    position_axes: bool = False
    speech: Callable[[Any], nn.Module] | None = None
    padding: tuple[str, ...] = ("image_token_id",)


def _features(model: Any) -> nn.Module:
    return Features(model, "get_image_features", "image_features")


def _images(config: Any) -> dict[str, Tensor]:
    side = config.vision_config.image_size
    return {"pixel_values": torch.randn(2, 3, side, side)}


def _image(config: Any) -> dict[str, Tensor]:
    side = config.vision_config.patch_size * config.spatial_merge_size
    return {"pixel_values": torch.randn(1, 3, 4 * side, 6 * side)}


def _placed_patches(config: Any) -> dict[str, Tensor]:
    vision = config.vision_config
    pooled = vision.pooling_kernel_size
    places = torch.cartesian_prod(torch.arange(2 * pooled), torch.arange(3 * pooled)).flip(-1)
    pixels = torch.rand(2, len(places), 3 * vision.patch_size**2)
    return {"pixel_values": pixels, "pixel_position_ids": places.expand(2, -1, -1).clone()}


def _squares_of_patches(config: Any) -> dict[str, Tensor]:
    vision, merged = config.vision_config, config.vision_config.spatial_merge_size
    grid = torch.tensor([[1, 4, 2], [1, 2, 6]]) * torch.tensor([1, merged, merged])
    size = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    return {"pixel_values": torch.randn(int(grid.prod(-1).sum()), size), "image_grid_thw": grid}


def _of_squares(kind: str) -> Family:
    dims = {"pixel_values": {0: "patches"}, "image_grid_thw": {0: "images"}}
    return Family(kind, SquaresOfPatches, _squares_of_patches, dims, position_axes=True)


_FRAMES = 80
_KINDS = ("full_attention", "sliding_attention")

FAMILIES = {
    "gemma3": Family("gemma3", _features, _images, {"pixel_values": {0: "images"}}, lambda _: _KINDS),
    "gemma4": Family(
        "gemma4",
        PlacedPatches,
        _placed_patches,
        {name: {0: "images", 1: "patches"} for name in ("pixel_values", "pixel_position_ids")},
        lambda text: _KINDS[1:] if text.use_bidirectional_attention == "vision" else (),
        speech=FramesOfSound,
        padding=("image_token_id", "video_token_id", "audio_token_id"),
    ),
    "mistral3": Family("mistral3", ImageOfAnySize, _image, {"pixel_values": {2: "height", 3: "width"}}),
    **{name: _of_squares(name) for name in ("qwen2_5_vl", "qwen3_vl", "qwen3_5", "qwen3_5_moe")},
}
"""The type of a model of transformers → its family."""


class _Embedding(nn.Module):
    """Computes the embeddings of tokens, and puts the features of images and sounds into those of their tokens."""

    def __init__(self, model: Any, family: Family) -> None:
        super().__init__()
        self.embeddings, self.image = model.get_input_embeddings(), model.config.image_token_id
        self.sound: Any = getattr(model.config, "audio_token_id", None)
        self.unread = [number for name in family.padding if (number := getattr(model.config, name)) is not None]
        text = model.config.get_text_config()
        self.padding = getattr(text, "pad_token_id", None) or 0
        self.layers = model.model.language_model if getattr(text, "hidden_size_per_layer_input", 0) else None

    def forward(
        self, input_ids: Tensor, image_features: Tensor, audio_features: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Returns the embeddings (batch, sequence, size), and the inputs of the layers if any.

        Args:
            input_ids: int64 (batch, sequence).
            image_features: (..., size).
            audio_features: (tokens, size), if the model takes sounds.
        """
        ids = input_ids
        for token in self.unread:
            ids = ids.masked_fill(input_ids == token, self.padding)
        words, size = self.embeddings(ids), image_features.shape[-1]
        words = functional.pad(words, (0, size - words.shape[-1]))
        words = words.masked_scatter(input_ids.eq(self.image)[..., None], image_features.reshape(-1, size))
        if audio_features is not None:
            words = words.masked_scatter(input_ids.eq(self.sound)[..., None], audio_features)
        result = {"inputs_embeds": words}
        if self.layers is not None:
            result["per_layer_inputs"] = self.layers.get_per_layer_inputs(ids).flatten(2)
        return result


class _Decoder(nn.Module):
    """Computes logits and the new cache from embeddings.

    Args:
        model: the model.
        bidirectional: the kinds of layers in which the tokens of an image see each other.
    """

    def __init__(self, model: Any, bidirectional: Collection[str]) -> None:
        super().__init__()
        self.model, self.bidirectional = model, bidirectional

    def forward(
        self,
        inputs_embeds: Tensor,
        input_ids: Tensor | None = None,
        per_layer_inputs: Tensor | None = None,
        **given: Any,
    ) -> dict[str, Any]:
        """Returns the logits (batch, sequence, vocabulary) and the cache.

        Args:
            inputs_embeds: (batch, sequence, size), for Qwen3-VL with what is added after the first layers.
            input_ids: the tokens (batch, sequence), if those of an image see each other.
            per_layer_inputs: (batch, sequence, layers * size), if layers have inputs of their own.
            given: the mask of the past and the tokens, the positions, and the past.
        """
        text = self.model.model.language_model
        if input_ids is not None:
            given["attention_mask"] = self.masks(inputs_embeds, input_ids, **given)
        if per_layer_inputs is not None:
            given["per_layer_inputs"] = per_layer_inputs.unflatten(-1, (text.config.num_hidden_layers, -1))
        first, *more = inputs_embeds.split(text.config.hidden_size, -1)
        if not more:
            result = self.model(inputs_embeds=first, use_cache=True, **given)
            return {"logits": result.logits, "past_key_values": result.past_key_values}
        # The features are zero but for the tokens of images, so they are added for all tokens.
        with replace_attribute(type(text), "_deepstack_process", lambda _, states, __, features: states + features):
            result = text(inputs_embeds=first, use_cache=True, deepstack_visual_embeds=more, **given)
        return {"logits": self.model.lm_head(result.last_hidden_state), "past_key_values": result.past_key_values}

    def masks(self, inputs_embeds: Tensor, input_ids: Tensor, **given: Any) -> dict[str, Tensor]:
        """Returns the mask (batch, 1, sequence, past + sequence) of each kind of layers.

        That of transformers for layers with a window is computed by ``vmap``, which takes long to trace.
        """
        from transformers.masking_utils import create_causal_mask

        text = self.model.config.get_text_config()
        cache = given["past_key_values"]
        past = 0 if cache is None else cache.get_seq_length()
        blocks = self.blocks(functional.pad(input_ids, (past, 0), value=-1))
        make: Any = create_causal_mask
        masks: dict[str, Any] = {}
        for kind in _KINDS:
            seen = blocks if kind in self.bidirectional else torch.full_like(blocks, -1)
            masks[kind] = make(text, inputs_embeds, *_by_position(given), block_sequence_ids=seen)
        mask = masks["sliding_attention"]
        position = torch.arange(past + input_ids.shape[1])
        sees = position > position[past:, None] - text.sliding_window
        hidden = False if mask.dtype == torch.bool else torch.finfo(mask.dtype).min
        return {**masks, "sliding_attention": torch.where(sees, mask, hidden)}

    def blocks(self, ids: Tensor) -> Tensor:
        """Returns the number of the image of each token, -1 for words (batch, sequence)."""
        is_image = (ids == self.model.config.image_token_id).long()
        return _code(self.model).get_block_sequence_ids_for_mask(is_image, ids.device)  # type: ignore[no-any-return]

    def check_masks(self, inputs_embeds: Tensor, input_ids: Tensor) -> None:
        """Raises an ArgumentError if transformers computes other masks for a prompt."""
        text, mask = self.model.config.get_text_config(), torch.ones_like(input_ids)
        given = {"attention_mask": mask, "past_key_values": None, "position_ids": None}
        masks = self.masks(inputs_embeds, input_ids, **given)
        own_masks = _code(self.model).create_masks_for_vision_model
        own = own_masks(text, inputs_embeds, *_by_position(given), self.blocks(input_ids))
        for kind, expected in own.items():
            if expected is not None and not torch.equal(expected, masks[kind]):
                raise ArgumentError(
                    f"{type(self.model).__name__} masks the tokens of images in another way than transformers 5.23, "
                    "for which the layout genai is made.",
                    id=MessageId.MODEL_SOURCE,
                )


def _by_position(given: Mapping[str, Any]) -> list[Any]:
    """Returns the arguments of a function that makes masks; transformers 5.24 has another name for the cache."""
    return [given[name] for name in ("attention_mask", "past_key_values", "position_ids")]


def _code(model: Any) -> Any:
    return sys.modules[type(model).__module__]


def images_and_text(model: Any) -> list[Part]:
    """Returns the parts of a model of one of ``FAMILIES``. The examples follow from its config."""
    family, config = FAMILIES[model.config.model_type], model.config
    vision = graph("vision", family.vision(model), family.examples(config), dict(family.dims))
    arguments = text_generation_arguments(model, padding=takes_padding(model), full_cache=True)
    kwargs, shapes = arguments["kwargs"], arguments["dynamic_shapes"]
    ids, tokens = kwargs.pop("input_ids"), shapes.pop("input_ids")
    with torch.no_grad():
        features = vision.module(**vision.kwargs)["image_features"]
    count = features.numel() // features.shape[-1]
    prompt = functional.pad(torch.full((2, count // 2), config.image_token_id), (1, 0), value=1)
    axes = dict(enumerate(("images", "features")[-features.dim() + 1 :]))
    inputs, dims = {"input_ids": prompt, "image_features": features}, {"input_ids": tokens, "image_features": axes}
    sounds: list[Part] = []
    no_sound: dict[str, Tensor] = {}
    if family.speech is not None and config.audio_config is not None:
        sounds, rows = _sound(model, family.speech)
        inputs["input_ids"] = functional.pad(prompt, (0, len(rows) // 2), value=config.audio_token_id)
        inputs, dims = {**inputs, "audio_features": rows}, {**dims, "audio_features": {0: "sounds"}}
        no_sound = {"audio_features": rows[:0]}
    embedding = graph("embedding", _Embedding(model, family), inputs, dims)
    ids[:, 1:3] = config.image_token_id
    with torch.no_grad():
        embedded = embedding.module(ids, features.flatten(0, -2)[:4], **no_sound)
    decoder = _Decoder(model, family.bidirectional(config.get_text_config())).eval()
    if decoder.bidirectional:
        decoder.check_masks(embedded["inputs_embeds"], ids)
        embedded["input_ids"] = ids
    if family.position_axes:
        kwargs["position_ids"] = kwargs["position_ids"].expand(3, -1, -1).clone()
        shapes["position_ids"] = {axis + 1: name for axis, name in shapes["position_ids"].items()}
    dims = {**dict.fromkeys(embedded, tokens), **shapes}
    return [vision, *sounds, embedding, Part("decoder", decoder, {**embedded, **kwargs}, dims, ())]


def _sound(model: Any, make: Callable[[Any], nn.Module]) -> tuple[list[Part], Tensor]:
    """Returns the part that computes the features of a sound, and those of its example."""
    frames = {"audio_embeds": torch.randn(1, _FRAMES, model.config.audio_config.subsampling_conv_channels[0])}
    part = graph("speech", make(model), frames, {"audio_embeds": {1: "frames"}})
    with torch.no_grad():
        return [part], part.module(**frames)["audio_features"]


def take_any_rank(model: ir.Model) -> None:
    """Lets a program take the features of images of any rank, if it reshapes them first.

    onnxruntime-genai gives features (images, tokens, size) of images, but (0, size) if the prompt has no image.
    """
    (features,) = (value for value in model.graph.inputs if value.name == "image_features")
    values = [features]
    for value in values:
        values += [node.outputs[0] for node, _ in value.uses() if node.op_type == "Cast"]
    if all(node.op_type in ("Cast", "Reshape") for value in values for node, _ in value.uses()):
        for value in values:
            value.shape = None
