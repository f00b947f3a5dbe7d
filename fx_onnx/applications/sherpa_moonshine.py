"""The parts of Moonshine as sherpa-onnx runs them, for ``OfflineRecognizer.from_moonshine_v2``.

Source: ``offline-moonshine-model-v2.cc`` and ``offline-moonshine-v2-greedy-search-decoder.cc`` of sherpa-onnx, which
read inputs and results by their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from fx_onnx.applications.encoder_decoder import encoder_decoder
from fx_onnx.applications.parts import Part
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId

__all__ = ["moonshine_parts"]

_TOKENS = {"decoder_start_token_id": 1, "eos_token_id": 2}
"""The tokens that sherpa-onnx has in its code."""


class _Decoder(nn.Module):
    """Takes one more input, which sherpa-onnx gives and the decoder does not need."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self, input_ids: Tensor, encoder_hidden_states: Tensor, past_key_values: Any, use_cache_branch: Tensor
    ) -> Any:
        """Returns the logits and the new cache; ``use_cache_branch`` (1), bool, is not read."""
        return self.decoder(input_ids, encoder_hidden_states, past_key_values)


def moonshine_parts(model: Any, fields: Sequence[str], given: Mapping[str, Tensor]) -> list[Part]:
    """Returns the encoder and the decoder of a model.

    Raises:
        ArgumentError: the first or the last token is another one than in sherpa-onnx.
    """
    for name, token in _TOKENS.items():
        if (own := getattr(model.config, name)) != token:
            raise ArgumentError(
                f"In sherpa-onnx, {name} of Moonshine is {token}, but it is {own} in the config.",
                id=MessageId.MODEL_SOURCE,
            )
    one_sound = {name: value for name, value in given.items() if name != "attention_mask"}  # it has no padding
    parts = {part.name: part for part in encoder_decoder(model, fields, one_sound)}
    decoder = parts["decoder_model_merged"]
    return [
        replace(parts["encoder_model"], forms=()),
        replace(
            decoder,
            module=_Decoder(decoder.module).eval(),
            kwargs={**decoder.kwargs, "use_cache_branch": torch.tensor([True])},
            dynamic_shapes={**decoder.dynamic_shapes, "use_cache_branch": None},
            forms=(),
        ),
    ]
