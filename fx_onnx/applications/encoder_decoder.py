"""The parts of a model with an encoder and a decoder, in three forms.

- merged: ``encoder_model`` and ``decoder_model_merged``, one program for all tokens. Its cross-attention takes the keys
  and values of its past, and computes those of the encoder's states that are not in this past: all of them in the first
  call, in which the past is empty, and none later. So the program has no branch, and no input that chooses one.
- two decoders: ``encoder_model``, ``decoder_model`` for the first call, and ``decoder_with_past_model`` for later ones.
- cross cache: ``encoder_with_cross``, which computes the keys and values of its states too, and
  ``decoder_with_past_model``.

A decoder that is a language model of its own, as GPT-2 in a VisionEncoderDecoderModel, has no keys and values of the
encoder in its past, as its applications expect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from fx_onnx.applications.inputs import example_inputs, input_names, parameters_of
from fx_onnx.applications.parts import Fields, Given, Part, graph, running
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.torch_internals.torch_private import pytree

if TYPE_CHECKING:
    from transformers import EncoderDecoderCache

__all__ = ["Past", "encoder_decoder", "merged_decoder", "new_cache", "past_of", "present_names"]

_STATES = "last_hidden_state"
_SEQUENCE, _PAST, _PAST_SOURCE = 3, 5, 4
"""The numbers of tokens in the example of the decoder, in its past, and of the encoder's states in its past."""
_KINDS = ("decoder", "encoder")
_MERGED, _TWO, _CROSS = "merged", "two decoders", "cross cache"
Past = list[dict[str, Any]]
"""For each layer, ``decoder`` and ``encoder`` → ``key`` and ``value`` (batch, heads, length, size), or only those of
the decoder, without its name."""


class _Decoder(torch.nn.Module):
    """Computes logits and the new cache from tokens, the encoder's states and a past.

    Args:
        model: a model with an encoder and a decoder.
        size: the size of the encoder's states.
        kinds: the kinds of the keys and values that are returned, ``decoder`` and ``encoder``; empty for a decoder
            whose past has no kinds.
    """

    def __init__(self, model: torch.nn.Module, size: int, kinds: Sequence[str]) -> None:
        super().__init__()
        self.model: Any = model
        self.size, self.kinds = size, kinds

    def forward(
        self,
        input_ids: Tensor,
        encoder_hidden_states: Tensor | None = None,
        past_key_values: Past | None = None,
        encoder_attention_mask: Tensor | None = None,
    ) -> list[Tensor]:
        """Returns the logits, and the tensors of the new cache, in the order of those of the past.

        Args:
            input_ids: int64 (batch, sequence), the tokens after those of the past.
            encoder_hidden_states: (batch, source, size), those of the past included; None if all are in the past.
            past_key_values: the past; None for the first tokens. That of the encoder has at most ``source`` states.
            encoder_attention_mask: int64 (batch, source), 0 for padding.
        """
        past = past_key_values or []
        known = past[0]["encoder"]["key"].shape[2] if past and self.kinds else 0
        cache = new_cache(past)
        if encoder_hidden_states is None:  # only its shape is read
            cache.is_updated = dict.fromkeys(range(len(past)), True)
            empty = torch.zeros((), dtype=self.model.dtype, device=input_ids.device)
            states = empty.expand(input_ids.shape[0], known, self.size)
        else:
            states = encoder_hidden_states[:, known:]
        mask = {} if encoder_attention_mask is None else {"attention_mask": encoder_attention_mask}
        logits = _run(self.model, input_ids, states, cache, **mask)
        layers = past_of(cache, bool(self.kinds))
        return [logits, *pytree.tree_leaves([{kind: layer[kind] for kind in self.kinds or layer} for layer in layers])]


class _EncoderWithCross(torch.nn.Module):
    """Computes the states of the encoder, and the keys and values of the cross-attention."""

    def __init__(self, model: torch.nn.Module, encoder: torch.nn.Module) -> None:
        super().__init__()
        self.model, self.encoder = model, encoder

    def forward(self, **inputs: Tensor) -> list[Tensor]:
        """Returns the states, and for each layer of the decoder a key and a value."""
        states, cache = self.encoder(**inputs)[_STATES], new_cache()
        _run(self.model, torch.zeros(states.shape[0], 1, dtype=torch.int64, device=states.device), states, cache)
        return [states, *pytree.tree_leaves([layer["encoder"] for layer in past_of(cache, True)])]


def new_cache(past: Sequence[dict[str, Any]] = ()) -> EncoderDecoderCache:
    """Returns a cache whose cross-attention takes further states, unlike that of a cache that is complete."""
    from transformers import DynamicCache, EncoderDecoderCache

    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    rows = [[layer.get(kind, layer if kind == "decoder" else None) for layer in past] for kind in _KINDS]
    cache.self_attention_cache, cache.cross_attention_cache = (
        DynamicCache([(row["key"], row["value"]) for row in layers if row is not None]) for layers in rows
    )
    return cache


def past_of(cache: Any, keeps_source: bool) -> Past:
    """Returns the tensors of a cache."""
    kinds = [
        [{"key": layer.keys, "value": layer.values} for layer in part.layers]
        for part in (cache.self_attention_cache, cache.cross_attention_cache)
    ]
    return [dict(zip(_KINDS, pair, strict=True)) for pair in zip(*kinds, strict=True)] if keeps_source else kinds[0]


def _run(model: Any, ids: Tensor, states: Tensor, cache: EncoderDecoderCache, **mask: Tensor) -> Tensor:
    """Returns the logits. The cache grows."""
    from transformers.modeling_outputs import BaseModelOutput

    outputs: Any = BaseModelOutput(last_hidden_state=states)
    outputs.attention_mask = None  # Moonshine reads it, because its encoder returns a mask if it takes one
    result = model(decoder_input_ids=ids, encoder_outputs=outputs, past_key_values=cache, use_cache=True, **mask)
    return result.logits  # type: ignore[no-any-return]


def encoder_decoder(model: Any, fields: Sequence[str], given: Given) -> list[Part]:
    """Returns the encoder and the decoders of all forms.

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
    merged = replace(merged_decoder(model, fields, first), forms=(_MERGED,))
    past = merged.kwargs["past_key_values"]
    cross = _with_cross(model, first, past) if "encoder" in past[0] else ()
    return [replace(first, forms=(_MERGED, _TWO)), merged, *_two_decoders(merged), *cross]


def merged_decoder(model: Any, fields: Sequence[str], first: Part) -> Part:
    """Returns the decoder for all tokens.

    Args:
        model: has the config of a decoder, and a forward that takes its tokens and the states of an encoder.
        fields: its outputs before those of the cache.
        first: the encoder, whose only output is its states.
    """
    with torch.no_grad():
        states = first.module(**first.kwargs)[_STATES]
        past = _example_past(model, states)
    source = {1: "source"} if any(len(dims) > 1 for dims in first.dynamic_shapes.values()) else {}
    ids = _tokens(model, len(states), _SEQUENCE)
    kwargs = {"input_ids": ids, "encoder_hidden_states": states, "past_key_values": past}
    shapes: dict[str, Any] = {
        "input_ids": {0: "batch" if len(ids) == len(states) else "rows", 1: "sequence"},
        "encoder_hidden_states": {0: "batch", **source},
        "past_key_values": pytree.tree_map_with_path(_dims, past),
    }
    if {"input_ids", "attention_mask"} <= set(first.kwargs):
        kwargs["encoder_attention_mask"] = first.kwargs["attention_mask"]
        shapes["encoder_attention_mask"] = {0: "batch", **source}
    module = _Decoder(model, states.shape[-1], _KINDS if "encoder" in past[0] else ()).eval()
    return Part("decoder_model_merged", module, kwargs, shapes, (*fields, *present_names(past)))


def _tokens(model: Any, batch: int, length: int) -> Tensor:
    """Returns tokens of a decoder, which has a row for each codebook of an item if its config has codebooks."""
    config = model.config.get_text_config(decoder=True)
    return torch.randint(config.vocab_size, (batch * getattr(config, "num_codebooks", 1), length))


def present_names(past: Past) -> list[str]:
    """Returns the names of the tensors of the new cache."""
    return [name.replace("past_key_values", "present") for name in input_names({"past_key_values": past})]


def _two_decoders(merged: Part) -> list[Part]:
    """Returns the decoder of the first tokens, and that of later ones, in whose past are all states of the encoder."""
    whole: Any = merged.module
    later = _Decoder(whole.model, whole.size, ("decoder",) if whole.kinds else ()).eval()
    kwargs, shapes = dict(merged.kwargs), dict(merged.dynamic_shapes)
    first = replace(
        merged,
        name="decoder_model",
        kwargs={name: kwargs[name] for name in kwargs if name != "past_key_values"},
        dynamic_shapes={name: shapes[name] for name in shapes if name != "past_key_values"},
        forms=(_TWO,),
    )
    if whole.kinds:
        states, source = kwargs.pop("encoder_hidden_states"), shapes.pop("encoder_hidden_states")
        with torch.no_grad():
            past = _example_past(whole.model, states, whole=True)
        kwargs["past_key_values"] = past
        shapes["past_key_values"] = pytree.tree_map_with_path(partial(_dims, source=source), past)
    outputs = tuple(name for name in merged.outputs if ".encoder." not in name)
    return [first, Part("decoder_with_past_model", later, kwargs, shapes, outputs, (_TWO, _CROSS))]


def _with_cross(model: Any, first: Part, past: Past) -> Iterator[Part]:
    """Yields the encoder that computes the keys and values of its states too, for a decoder that takes them."""
    module = _EncoderWithCross(model, model.get_encoder()).eval()
    outputs = (_STATES, *(name for name in present_names(past) if ".encoder." in name))
    yield replace(first, name="encoder_with_cross", module=module, outputs=outputs, forms=(_CROSS,))


def _dims(path: Sequence[Any], _: Tensor, source: dict[int, str] | None = None) -> dict[int, str]:
    """Returns the dynamic dims of a tensor of the past.

    Args:
        path: where it is.
        source: the dynamic dims of the encoder's states, if all of them are in the past.
    """
    is_source = any(getattr(entry, "key", None) == "encoder" for entry in path)
    if is_source and source is not None:
        return {0: "batch", **({2: source[1]} if 1 in source else {})}
    return {0: "batch", 2: "past_source" if is_source else "past"}


def _example_past(model: Any, states: Tensor, *, whole: bool = False) -> Past:
    """Returns the cache after some tokens and some, or all, of the encoder's states.

    Raises:
        ArgumentError: the model has no cache of two parts, or its decoder does not read the encoder's states.
    """
    cache, decoder = new_cache(), getattr(model.config, "decoder", None)
    keeps_source = decoder is None or hasattr(decoder, "decoder_layers")
    with running(model, "an EncoderDecoderCache"):
        ids = _tokens(model, len(states), _PAST)
        _run(model, ids, states if whole else states[:, :_PAST_SOURCE].contiguous(), cache)
    if not cache.cross_attention_cache.layers:
        raise ArgumentError(
            f"The decoder of {type(model).__name__} has no cross-attention; make its config with is_decoder=True and "
            "add_cross_attention=True.",
            id=MessageId.MODEL_SOURCE,
        )
    return past_of(cache, keeps_source)
