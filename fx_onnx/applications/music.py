"""The parts of MusicGen: ``text_encoder``, ``decoder_model_merged`` and ``encodec_decode``.

The decoder has a row of tokens for each codebook of an item. The application delays the rows, and gives the tokens of
all codebooks to the last part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_onnx.applications.encoder_decoder import merged_decoder
from fx_onnx.applications.inputs import example_inputs
from fx_onnx.applications.parts import Given, Part, graph
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId

__all__ = ["music"]

_BATCH, _FRAMES = 2, 7


class _Texts(torch.nn.Module):
    """Computes what the decoder takes of texts. Padding becomes zero, as the states of no text are in guidance."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.encoder, self.projection = model.text_encoder, getattr(model, "enc_to_dec_proj", torch.nn.Identity())

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        """int64 (batch, source) twice to (batch, source, size of the decoder)."""
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return {"last_hidden_state": self.projection(states) * attention_mask[..., None]}


class _Decoder(torch.nn.Module):
    """The decoder, with the arguments of a model that has an encoder too."""

    def __init__(self, decoder: Any) -> None:
        super().__init__()
        self.decoder, self.config = decoder, decoder.config

    def forward(self, decoder_input_ids: Tensor, encoder_outputs: Any, attention_mask: Any = None, **cache: Any) -> Any:
        """Runs the decoder."""
        states = {"encoder_hidden_states": encoder_outputs[0], "encoder_attention_mask": attention_mask}
        return self.decoder(input_ids=decoder_input_ids, **states, **cache)


class _Codec(torch.nn.Module):
    """Computes sounds from the tokens of all codebooks."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, audio_codes: Tensor) -> dict[str, Tensor]:
        """int64 (1, batch, codebooks, frames) to (batch, 1, samples)."""
        return {"audio_values": self.model.decode(audio_codes, [None]).audio_values}


def music(model: Any, fields: Sequence[str], given: Given) -> list[Part]:
    """Returns the encoder of texts, the decoder, and the decoder of the codec.

    Raises:
        ArgumentError: the model has two channels, whose codebooks applications do not delay in pairs.
    """
    config = model.config.decoder
    if config.audio_channels != 1:
        raise ArgumentError(
            f"The applications of {type(model).__name__} know sounds of one channel, not of {config.audio_channels}; "
            "export it with fx_onnx.export.",
            id=MessageId.MODEL_SOURCE,
        )
    texts = graph("text_encoder", _Texts(model), *example_inputs(model.text_encoder, given))
    codes = torch.randint(model.config.audio_encoder.codebook_size, (1, _BATCH, config.num_codebooks, _FRAMES))
    dims = {"audio_codes": {1: "batch", 3: "frames"}}
    codec = graph("encodec_decode", _Codec(model.audio_encoder), {"audio_codes": codes}, dims)
    return [texts, merged_decoder(_Decoder(model.decoder), fields, texts), codec]
