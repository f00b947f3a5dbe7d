"""The parts of a decoder with layers that predict more tokens than the next one: ``decoder`` and ``mtp``.

The decoder returns its last states too. An application gives them to ``mtp``, with the tokens that follow them, and
checks the tokens that it predicts in the next run of the decoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fx_onnx.applications.parts import Given, Part, decoder_arguments
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId

__all__ = ["tokens_ahead"]

_PAST, _TOKENS = 5, 3


class _Decoder(nn.Module):
    """Computes logits, the new cache and the last states."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.decoder = model

    def forward(self, **given: Any) -> dict[str, Any]:
        """The arguments of the model to its results."""
        result = self.decoder(**given, use_cache=True, output_hidden_states=True)
        past = result.past_key_values
        return {"logits": result.logits, "past_key_values": past, "hidden_states": result.hidden_states[-1]}


class _Ahead(nn.Module):
    """Predicts one token with each of the further layers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, hidden_states: Tensor, position_ids: Tensor, past_key_values: Any) -> Any:
        """Returns the tokens (1, layers), their logits (1, layers, vocabulary), and the new cache of these layers.

        Args:
            input_ids: (1, sequence), the tokens that follow those of ``hidden_states``.
            hidden_states: (1, sequence, size), the last states of the decoder.
            position_ids: (1, sequence), the positions of ``input_ids``.
            past_key_values: the cache of these layers.
        """
        ids, logits, _ = self.model(input_ids, hidden_states, None, position_ids, past_key_values)
        return {"candidate_ids": ids, "candidate_logits": logits, "past_key_values": past_key_values}


def tokens_ahead(model: Any, fields: Sequence[str], given: Given) -> list[Part]:
    """Returns the decoder, and the layers that transformers loads from the same folder for ``use_mtp=True``.

    Raises:
        ArgumentError: transformers has no such layers for the model, or the folder lacks their weights.
    """
    kind = model.config.model_type
    if not getattr(model.config.get_text_config(), "num_mtp_layers", 0):
        raise ArgumentError(
            f"transformers has no layers for more tokens of {kind}: its config has no num_mtp_layers, so their weights "
            "are not loaded; choose the task text-generation.",
            id=MessageId.MODEL_SOURCE,
        )
    from transformers.cache_utils import MtpCache
    from transformers.modeling_layers import MtpModel

    try:
        layers: Any = MtpModel.from_pretrained(model)
    except (OSError, RuntimeError, ValueError) as error:
        raise ArgumentError(
            f"transformers cannot load the layers for more tokens of {kind}: {error}", id=MessageId.MODEL_SOURCE
        ) from error
    layers.eval()
    kwargs, shapes, present = decoder_arguments(model)
    decoder = Part("decoder", _Decoder(model).eval(), kwargs, shapes, (*fields, *present, "hidden_states"))
    text = model.config.get_text_config()
    cache, ids = MtpCache(config=model.config.get_mtp_config()), torch.randint(text.vocab_size, (1, _PAST + _TOKENS))
    states, places = torch.randn(1, _PAST + _TOKENS, text.hidden_size), torch.arange(1, _PAST + _TOKENS + 1)[None]
    with torch.no_grad():
        layers(ids[:, :_PAST], states[:, :_PAST], None, places[:, :_PAST], cache)
    inputs = {"input_ids": ids, "hidden_states": states, "position_ids": places}
    inputs = {name: value[:, _PAST:] for name, value in inputs.items()}
    dims: dict[str, Any] = {name: {1: "sequence"} for name in inputs}
    names = ("candidate_ids", "candidate_logits", *present[: 2 * len(layers.layers)])
    ahead = {**inputs, "past_key_values": cache}
    return [decoder, Part("mtp", _Ahead(layers).eval(), ahead, {**dims, "past_key_values": {2: "past"}}, names)]
