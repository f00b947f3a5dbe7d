"""The parts of a model with an encoder and a decoder: ``encoder_model`` and ``decoder_model_merged``.

The decoder is one program for all tokens. Its cross-attention takes the keys and values of its past, and computes those
of the encoder's states that are not in this past: all of them in the first call, in which the past is empty, and none
later. So the program has no branch, and no input that chooses one. A decoder that is a language model of its own, as
GPT-2 in a VisionEncoderDecoderModel, has no keys and values of the encoder in its past, as its applications expect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fx_onnx.core.errors import ArgumentError
from fx_onnx.core.messages import MessageId
from fx_onnx.core.torch_private import pytree
from fx_onnx.pretrained.inputs import example_inputs, input_names, parameters_of
from fx_onnx.pretrained.parts import Fields, Given, Part, graph, running

if TYPE_CHECKING:
    from transformers import EncoderDecoderCache

__all__ = ["encoder_decoder"]

_STATES = "last_hidden_state"
_SEQUENCE, _PAST, _PAST_SOURCE = 3, 5, 4
"""The numbers of tokens in the example of the decoder, in its past, and of the encoder's states in its past."""
_KINDS = ("decoder", "encoder")
Past = list[dict[str, Any]]
"""For each layer, ``decoder`` and ``encoder`` → ``key`` and ``value`` (batch, heads, length, size), or only those of
the decoder, without its name."""


class _Decoder(torch.nn.Module):
    """Computes logits and the new cache from tokens, the encoder's states and a past."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: Tensor,
        encoder_hidden_states: Tensor,
        past_key_values: Past,
        encoder_attention_mask: Tensor | None = None,
    ) -> list[Tensor]:
        """Returns the logits, and the tensors of the new cache, in the order of those of the past.

        Args:
            input_ids: int64 (batch, sequence), the tokens after those of the past.
            encoder_hidden_states: (batch, source, size), those of the past included.
            past_key_values: the past. That of the encoder has at most ``source`` states.
            encoder_attention_mask: int64 (batch, source), 0 for padding.
        """
        cache = _cache(past_key_values)
        keeps_source = "encoder" in past_key_values[0]
        known = past_key_values[0]["encoder"]["key"].shape[2] if keeps_source else 0
        mask = {} if encoder_attention_mask is None else {"attention_mask": encoder_attention_mask}
        logits = _run(self.model, input_ids, encoder_hidden_states[:, known:], cache, **mask)
        return [logits, *pytree.tree_leaves(_past(cache, keeps_source))]


def _cache(past: Sequence[dict[str, Any]] = ()) -> EncoderDecoderCache:
    """Returns a cache whose cross-attention takes further states, unlike that of a cache that is complete."""
    from transformers import DynamicCache, EncoderDecoderCache

    found = EncoderDecoderCache(DynamicCache(), DynamicCache())
    rows = [[layer.get(kind, layer if kind == "decoder" else None) for layer in past] for kind in _KINDS]
    found.self_attention_cache, found.cross_attention_cache = (
        DynamicCache([(row["key"], row["value"]) for row in each if row is not None]) for each in rows
    )
    return found


def _past(cache: Any, keeps_source: bool) -> Past:
    """Returns the tensors of a cache."""
    kinds = [
        [{"key": layer.keys, "value": layer.values} for layer in part.layers]
        for part in (cache.self_attention_cache, cache.cross_attention_cache)
    ]
    return [dict(zip(_KINDS, pair, strict=True)) for pair in zip(*kinds, strict=True)] if keeps_source else kinds[0]


def _run(model: Any, ids: Tensor, states: Tensor, cache: EncoderDecoderCache, **mask: Tensor) -> Tensor:
    """Returns the logits. The cache grows."""
    from transformers.modeling_outputs import BaseModelOutput

    outputs = BaseModelOutput(last_hidden_state=states)
    result = model(decoder_input_ids=ids, encoder_outputs=outputs, past_key_values=cache, use_cache=True, **mask)
    return result.logits  # type: ignore[no-any-return]


def encoder_decoder(model: Any, fields: Sequence[str], given: Given) -> list[Part]:
    """Returns the encoder, and the decoder with its cache.

    Raises:
        ArgumentError: the inputs of the encoder cannot be derived, or the decoder has no cache of two parts.
    """
    encoder = model.get_encoder()
    if "decoder_input_ids" not in parameters_of(model.forward):
        raise ArgumentError(
            f"{type(model).__name__} is no model with an encoder and a decoder; choose another task.",
            id=MessageId.MODEL_SOURCE,
        )
    first = graph("encoder_model", Fields(encoder, (_STATES,), {}), *example_inputs(encoder, given))
    with torch.no_grad():
        states = first.module(**first.kwargs)[_STATES]
        past = _example_past(model, states)
    source = {1: "source"} if any(len(dims) > 1 for dims in first.dynamic_shapes.values()) else {}
    ids = torch.randint(model.config.get_text_config(decoder=True).vocab_size, (states.shape[0], _SEQUENCE))
    kwargs = {"input_ids": ids, "encoder_hidden_states": states, "past_key_values": past}
    shapes: dict[str, Any] = {
        "input_ids": {0: "batch", 1: "sequence"},
        "encoder_hidden_states": {0: "batch", **source},
        "past_key_values": pytree.tree_map_with_path(_dims, past),
    }
    if {"input_ids", "attention_mask"} <= set(first.kwargs):
        kwargs["encoder_attention_mask"] = first.kwargs["attention_mask"]
        shapes["encoder_attention_mask"] = {0: "batch", **source}
    present = [name.replace("past_key_values", "present") for name in input_names({"past_key_values": past})]
    return [first, Part("decoder_model_merged", _Decoder(model).eval(), kwargs, shapes, (*fields, *present))]


def _dims(path: Sequence[Any], _: Tensor) -> dict[int, str]:
    is_source = any(getattr(entry, "key", None) == "encoder" for entry in path)
    return {0: "batch", 2: "past_source" if is_source else "past"}


def _example_past(model: Any, states: Tensor) -> Past:
    """Returns the cache after some tokens and some of the encoder's states.

    Raises:
        ArgumentError: the model has no cache of two parts.
    """
    cache, decoder = _cache(), getattr(model.config, "decoder", None)
    keeps_source = decoder is None or hasattr(decoder, "decoder_layers")
    with running(model, "an EncoderDecoderCache"):
        ids = torch.zeros(states.shape[0], _PAST, dtype=torch.int64)
        _run(model, ids, states[:, :_PAST_SOURCE].contiguous(), cache)
    return _past(cache, keeps_source)
