"""The parts of Whisper as sherpa-onnx runs them.

``encoder`` takes a spectrogram of any length up to 30 seconds and computes the keys and values that the decoder reads.
``decoder`` writes the keys and values of its tokens to caches of a fixed size, from the place ``offset`` on.

Source: ``offline-whisper-model.cc`` and ``offline-recognizer-whisper-impl.h`` of sherpa-onnx, which reads inputs and
results by their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fx_onnx.applications.parts import Part
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId

__all__ = ["whisper_parts"]

_BATCH, _FRAMES, _TOKENS, _OFFSET = 2, 40, 3, 2


class _Encoder(nn.Module):
    """Computes the keys and values of each layer of the decoder. transformers' encoder takes 30 seconds only."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.encoder = model.get_encoder()
        self.attentions = nn.ModuleList(layer.encoder_attn for layer in model.get_decoder().layers)

    def forward(self, mel: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, bands, frames) to keys and values (layers, batch, frames // 2, size)."""
        states = functional.gelu(self.encoder.conv1(mel))
        states = functional.gelu(self.encoder.conv2(states)).transpose(1, 2)
        states = states + self.encoder.embed_positions.weight[: states.shape[1]]
        for layer in self.encoder.layers:
            states = layer(states, None)
        states = self.encoder.layer_norm(states)
        keys, values = ([getattr(each, name)(states) for each in self.attentions] for name in ("k_proj", "v_proj"))
        return torch.stack(keys), torch.stack(values)


class _Decoder(nn.Module):
    """Computes logits and writes the keys and values of the tokens."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.decoder, self.head = model.get_decoder(), model.get_output_embeddings()
        self.heads, self.length = model.config.decoder_attention_heads, model.config.max_target_positions

    def forward(
        self,
        tokens: Tensor,
        in_n_layer_self_k_cache: Tensor,
        in_n_layer_self_v_cache: Tensor,
        n_layer_cross_k: Tensor,
        n_layer_cross_v: Tensor,
        offset: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns logits (batch, tokens, vocabulary) and both caches.

        Args:
            tokens: int64 (batch, tokens).
            in_n_layer_self_k_cache: (layers, batch, length, size).
            in_n_layer_self_v_cache: the same for the values.
            n_layer_cross_k: (layers, batch, frames, size).
            n_layer_cross_v: the same for the values.
            offset: int64 (1), the number of tokens in the caches.
        """
        from transformers import DynamicCache, EncoderDecoderCache, StaticCache

        own, cross = StaticCache(config=self.decoder.config, max_cache_len=self.length), DynamicCache()
        rows = zip(in_n_layer_self_k_cache, in_n_layer_self_v_cache, n_layer_cross_k, n_layer_cross_v, strict=True)
        for index, (key, value, cross_key, cross_value) in enumerate(rows):
            key, value, cross_key, cross_value = map(self._divided, (key, value, cross_key, cross_value))
            layer: Any = own.layers[index]
            layer.lazy_initialization(key, value)
            layer.keys, layer.values, layer.cumulative_length = key.clone(), value.clone(), offset[0].clone()
            cross.update(cross_key, cross_value, index)
        states = self.decoder(
            input_ids=tokens,
            encoder_hidden_states=n_layer_cross_k[0],  # not read: the cache has its keys and values
            past_key_values=EncoderDecoderCache(own, cross),
            position_ids=(offset + torch.arange(tokens.shape[1]))[None].expand(tokens.shape[0], -1),
            use_cache=True,
        ).last_hidden_state
        keys, values = (
            torch.stack([getattr(layer, name).transpose(1, 2).flatten(2) for layer in own.layers])
            for name in ("keys", "values")
        )
        return self.head(states), keys, values

    def _divided(self, states: Tensor) -> Tensor:
        divided: Tensor = states.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return divided


def whisper_parts(model: Any, fields: Sequence[str], given: Mapping[str, Tensor]) -> list[Part]:
    """Returns the encoder with its metadata, and the decoder.

    Args:
        model: of Whisper.
        fields: not used.
        given: not used.

    Raises:
        ArgumentError: the generation config does not tell the numbers of the tokens.
    """
    config = model.config
    encoder, decoder = _Encoder(model).eval(), _Decoder(model).eval()
    mel = torch.randn(_BATCH, config.num_mel_bins, _FRAMES)
    with torch.no_grad():
        keys, values = encoder(mel)
    cache = torch.randn(config.decoder_layers, _BATCH, config.max_target_positions, config.d_model)
    caches = ("in_n_layer_self_k_cache", "in_n_layer_self_v_cache")
    inputs = {
        "tokens": torch.randint(config.vocab_size, (_BATCH, _TOKENS)),
        **dict(zip(caches, (cache, cache.flip(-1)), strict=True)),
        "n_layer_cross_k": keys,
        "n_layer_cross_v": values,
        "offset": torch.tensor([_OFFSET]),
    }
    sizes = {
        "tokens": {0: "batch", 1: "tokens"},
        **{name: {1: "batch"} for name in caches},
        **{name: {1: "batch", 2: "source"} for name in ("n_layer_cross_k", "n_layer_cross_v")},
        "offset": None,
    }
    results = ("logits", "out_n_layer_self_k_cache", "out_n_layer_self_v_cache")
    first = Part(
        "encoder",
        encoder,
        {"mel": mel},
        {"mel": {0: "batch", 2: "frames"}},
        ("n_layer_cross_k", "n_layer_cross_v"),
        metadata=_metadata(config, model.generation_config),
    )
    return [first, Part("decoder", decoder, inputs, sizes, results)]


def _metadata(config: Any, generation: Any) -> Mapping[str, str]:
    """Returns the sizes of a model and the numbers of its tokens."""
    missing = [name for name in ("no_timestamps_token_id", "begin_suppress_tokens") if not getattr(generation, name, 0)]
    if missing:
        raise ArgumentError(
            f"sherpa-onnx needs the tokens of Whisper: set {missing[0]} in the generation config of the model.",
            id=MessageId.MODEL_SOURCE,
        )
    start, no_timestamps = config.decoder_start_token_id, generation.no_timestamps_token_id
    languages, tasks = getattr(generation, "lang_to_id", None) or {}, getattr(generation, "task_to_id", None) or {}
    is_multilingual = bool(languages and tasks)
    sequence = [start]
    if is_multilingual:
        sequence += [languages.get("<|en|>", next(iter(languages.values()))), tasks["transcribe"]]
    values: dict[str, Any] = {
        "model_type": "whisper",
        "n_mels": config.num_mel_bins,
        "n_audio_ctx": config.max_source_positions,
        "n_text_layer": config.decoder_layers,
        "n_text_ctx": config.max_target_positions,
        "n_text_state": config.d_model,
        "n_vocab": config.vocab_size,
        "sot": start,
        "eot": config.eos_token_id,
        "blank_id": generation.begin_suppress_tokens[0],
        "translate": tasks.get("translate", start),
        "transcribe": tasks.get("transcribe", start),
        "is_multilingual": int(is_multilingual),
        "no_timestamps": no_timestamps,
        "no_speech": no_timestamps - 1,
        "sot_sequence": sequence,
        "all_language_tokens": [*languages.values()],
        "all_language_codes": [name.strip("<|>") for name in languages],
    }
    return {
        name: ",".join(map(str, value)) if isinstance(value, list) else str(value) for name, value in values.items()
    }
