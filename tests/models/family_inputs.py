"""Inputs for each kind of model: of any batch and length, for a small random network."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import DynamicCache, PreTrainedConfig

from tests.models.small_configs import IMAGE

if TYPE_CHECKING:
    from tests.models.families import Family

_TOKENS = 100  # below the size of the small vocabulary, where the special tokens are


def _ids(batch: int, length: int) -> torch.Tensor:
    return torch.randint(1, _TOKENS, (batch, length))


def _boxes(batch: int, length: int) -> torch.Tensor:
    return torch.sort(torch.randint(0, 100, (batch, length, 4)), -1).values


def _takes(module: nn.Module, name: str) -> bool:
    parameters = inspect.signature(module.forward).parameters
    return name in parameters or any(p.kind == p.VAR_KEYWORD for p in parameters.values())


def _find(config: PreTrainedConfig, *names: str) -> int | None:
    """Returns the first size with one of these names, in the config or a nested one."""
    for name in names:
        value = getattr(config, name, None)
        value = value[0] if isinstance(value, (list, tuple)) and value else value
        if type(value) is int:
            return value
    nested = (value for value in vars(config).values() if isinstance(value, PreTrainedConfig))
    return next((found for each in nested if (found := _find(each, *names)) is not None), None)


def _text(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    """Returns tokens, and boxes for layout models. The last two tokens of the first row are padding."""
    mask = torch.ones(batch, sequence, dtype=torch.int64)
    mask[0, -2:] = 0
    inputs: dict[str, Any] = {"input_ids": _ids(batch, sequence), "attention_mask": mask}
    if "bbox" in inspect.signature(module.forward).parameters:
        inputs["bbox"] = _boxes(batch, sequence)
    return inputs


def _decoder(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    inputs = _text(family, module, batch, sequence)
    return {**inputs, "use_cache": False} if _takes(module, "use_cache") else inputs


def _seq2seq(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    inputs = _decoder(family, module, batch, sequence)
    target = sequence - 2
    inputs["decoder_input_ids"] = _ids(batch, target)
    if _takes(module, "decoder_attention_mask"):
        inputs["decoder_attention_mask"] = torch.ones(batch, target, dtype=torch.int64)
    return inputs


def _vision(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    channels = _find(module.config, "num_channels", "in_channels", "in_chans") or 3
    return {"pixel_values": torch.randn(batch, channels, family.size, family.size)}


def _video(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    frames = _find(module.config, "num_frames") or 4
    return {module.main_input_name: torch.randn(batch, frames, 3, family.size, family.size)}


def _speech(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    """Returns samples of audio."""
    return {"input_values": torch.randn(batch, 1600 + 100 * sequence)}


def _codec(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    """Returns samples of audio, with an axis for the channel."""
    return {"input_values": torch.randn(batch, 1, 1600 + 100 * sequence)}


def _spectrogram(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    """Returns frames by mel bins; the model fixes the number of frames."""
    names = ("num_mel_bins", "feature_size", "feature_projection_input_dim", "input_feat_per_channel")
    return {module.main_input_name: torch.randn(batch, family.size, _find(module.config, *names) or 80)}


def _transcription(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    """Returns audio, and the beginning of its text."""
    inputs = _speech if module.main_input_name == "input_values" else _spectrogram
    sound = inputs(family, module, batch, sequence)
    if family.model_type == "whisper":
        sound["input_features"] = sound["input_features"].mT.contiguous()
    return {**sound, "decoder_input_ids": _ids(batch, sequence - 2), "use_cache": False}


def _caption(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    """Returns images, and the beginnings of their texts."""
    target = {"decoder_input_ids": _ids(batch, sequence), "use_cache": False}
    return {**_vision(family, module, batch, sequence), **target}


def _contrast(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    """Returns equal numbers of texts and images."""
    return {**_text(family, module, batch, sequence), **_vision(family, module, batch, sequence)}


def _chat(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    """Returns texts with an image in the middle, which takes ``family.image_tokens`` tokens."""
    token = _find(module.config, "image_token_id", "image_token_index")
    image = torch.full((batch, family.image_tokens), token or 0)
    ids = torch.cat([_ids(batch, 3), image, _ids(batch, sequence)], 1)
    mask = torch.ones_like(ids)
    mask[0, -2:] = 0
    inputs = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
    return {**inputs, **_vision(family, module, batch, sequence)}


def _series(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    """Returns past values of a time series; the model fixes their number."""
    config = module.config
    values = torch.randn(batch, config.context_length, config.num_input_channels)
    return {"past_values": values}


def _cache(family: Family, module: nn.Module, batch: int, sequence: int) -> dict[str, Any]:
    """Returns three tokens after a past of five, a prefill without a past, or one token after its past."""
    past = {family.sequences[0]: 5, family.sequences[1]: 0}.get(sequence, sequence - 1)
    config = module.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cache = DynamicCache(config=config)
    for layer in range(config.num_hidden_layers):
        cache.update(torch.randn(batch, heads, past, size), torch.randn(batch, heads, past, size), layer)
    return {
        "input_ids": _ids(batch, sequence - past),
        "attention_mask": torch.ones(batch, sequence, dtype=torch.int64),
        "past_key_values": cache,
    }


@dataclass(frozen=True)
class Kind:
    """The class that builds models of a kind, and the function that makes their inputs."""

    auto: str
    inputs: Callable[[Family, nn.Module, int, int], dict[str, Any]]


KINDS = {
    "text": Kind("AutoModel", _text),
    "decoder": Kind("AutoModelForCausalLM", _decoder),
    "seq2seq": Kind("AutoModelForSeq2SeqLM", _seq2seq),
    "vision": Kind("AutoModel", _vision),
    "backbone": Kind("AutoBackbone", _vision),
    "detection": Kind("AutoModelForObjectDetection", _vision),
    "segmentation": Kind("AutoModelForSemanticSegmentation", _vision),
    "depth": Kind("AutoModelForDepthEstimation", _vision),
    "video": Kind("AutoModel", _video),
    "speech": Kind("AutoModel", _speech),
    "codec": Kind("AutoModel", _codec),
    "spectrogram": Kind("AutoModel", _spectrogram),
    "transcription": Kind("AutoModelForSpeechSeq2Seq", _transcription),
    "caption": Kind("AutoModelForImageTextToText", _caption),
    "contrast": Kind("AutoModel", _contrast),
    "chat": Kind("AutoModelForImageTextToText", _chat),
    "series": Kind("AutoModel", _series),
    "cache": Kind("AutoModelForCausalLM", _cache),
}

_SEQUENCE = {0: "batch", 1: "sequence"}
_AXES: dict[str, dict[int, str]] = {
    "input_ids": _SEQUENCE,
    "token_type_ids": _SEQUENCE,
    "decoder_input_ids": {0: "batch", 1: "target"},
    "decoder_attention_mask": {0: "batch", 1: "target"},
    "input_values": {0: "batch", 1: "samples"},
    "bbox": _SEQUENCE,
    "attention_mask": _SEQUENCE,
}
_OF_KIND: dict[str, dict[str, dict[int, str]]] = {
    "cache": {"attention_mask": {0: "batch", 1: "total"}, "past_key_values": {0: "batch", 2: "past"}},
    "codec": {"input_values": {0: "batch", 2: "samples"}},
}


def dynamic_shapes(kind: str, inputs: dict[str, Any], static: frozenset[str]) -> dict[str, Any]:
    """Returns the requested dynamic dims, by argument; the first axis is always the batch."""
    axes = {**_AXES, **_OF_KIND.get(kind, {})}
    return {
        name: None
        if isinstance(value, bool)
        else {axis: dim for axis, dim in axes.get(name, {0: "batch"}).items() if dim not in static}
        for name, value in inputs.items()
    }


__all__ = ["IMAGE", "KINDS", "Kind", "dynamic_shapes"]
