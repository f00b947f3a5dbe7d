"""The parts of SpeechT5: ``encoder_model``, ``decoder_model_merged`` and ``decoder_postnet_and_vocoder``.

The application runs the decoder for each step, until it tells the end, and gives the whole spectrogram to the last
part. The names are those of the application, which reads one text at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fx_onnx.applications.encoder_decoder import Past, new_cache, past_of, present_names
from fx_onnx.applications.parts import Given, Part, graph
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.torch_internals.torch_private import pytree

__all__ = ["speech"]

_TOKENS, _FRAMES, _PAST = 6, 5, {"decoder": (4, "past"), "encoder": (3, "past_source")}
"""The numbers of tokens and frames in the examples; the kind of the past → its length there and the name of its dim."""


class _Encoder(torch.nn.Module):
    """Computes the states of a text, and its mask."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.encoder, self.padding = model.speecht5.encoder, model.config.pad_token_id

    def forward(self, input_ids: Tensor) -> dict[str, Tensor]:
        """int64 (1, source) to (1, source, size) and int64 (1, source)."""
        mask = (input_ids != self.padding).long()
        states = self.encoder(input_values=input_ids, attention_mask=mask).last_hidden_state
        return {"encoder_outputs": states, "encoder_attention_mask": mask}


class _Decoder(torch.nn.Module):
    """Computes the next frames of a spectrogram, as one step of the model's ``generate_speech``."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.decoder, self.head = model.speecht5.decoder, model.speech_decoder_postnet

    def forward(
        self,
        output_sequence: Tensor,
        encoder_hidden_states: Tensor,
        past_key_values: Past,
        speaker_embeddings: Tensor,
        encoder_attention_mask: Tensor,
    ) -> list[Tensor]:
        """Returns the probability of the end, the frames for the next step, the new frames, and the new cache.

        The application ends if a probability is above a threshold, and the model if their sum is. So this is the sum.

        Args:
            output_sequence: (1, frames, bands), the last frame of each step; the first is zero.
            encoder_hidden_states: (1, source, size).
            past_key_values: the past, in which are all states of the encoder but for the first step.
            speaker_embeddings: (1, size).
            encoder_attention_mask: int64 (1, source), 0 for padding.
        """
        cache = new_cache(past_key_values)
        last = self.decoder.wrapped_decoder(
            hidden_states=self.decoder.prenet(output_sequence, speaker_embeddings)[:, -1:],
            encoder_hidden_states=encoder_hidden_states[:, past_key_values[0]["encoder"]["key"].shape[2] :],
            encoder_attention_mask=encoder_attention_mask,
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state
        frames = self.head.feat_out(last).view(-1, output_sequence.shape[2])
        sequence = torch.cat([output_sequence, frames[None, -1:]], 1)
        end = self.head.prob_out(last).sigmoid().sum((1, 2))
        return [end, sequence, frames, *pytree.tree_leaves(past_of(cache, True))]


class _Vocoder(torch.nn.Module):
    """Computes a sound from the frames of all steps."""

    def __init__(self, model: Any, vocoder: torch.nn.Module) -> None:
        super().__init__()
        self.head, self.vocoder = model.speech_decoder_postnet, vocoder

    def forward(self, spectrogram: Tensor) -> dict[str, Any]:
        """(frames, bands) to (1, samples)."""
        return {"waveform": self.vocoder(self.head.postnet(spectrogram[None]))}


def speech(model: Any, fields: Sequence[str], given: Given, vocoder: Any = None) -> list[Part]:
    """Returns the encoder, the decoder, and the vocoder behind the last layers of the model.

    Raises:
        ArgumentError: there is no vocoder.
    """
    if vocoder is None:
        raise ArgumentError(
            f"{type(model).__name__} needs a vocoder: save one to the folder vocoder in its folder, or pass a pipeline "
            "of transformers that has one.",
            id=MessageId.MODEL_SOURCE,
        )
    config, heads = model.config, model.config.decoder_attention_heads
    ids = torch.randint(config.vocab_size, (1, _TOKENS))
    encoder = graph("encoder_model", _Encoder(model), {"input_ids": ids}, {"input_ids": {1: "source"}})
    states, mask = encoder.module(ids).values()

    def past(make: Any) -> Past:
        layer = {kind: {name: make(*_PAST[kind]) for name in ("key", "value")} for kind in _PAST}
        return [layer for _ in range(config.decoder_layers)]

    kwargs = {
        "output_sequence": torch.randn(1, _FRAMES, config.num_mel_bins),
        "encoder_hidden_states": states.detach(),
        "past_key_values": past(lambda length, _: torch.randn(1, heads, length, config.hidden_size // heads)),
        "speaker_embeddings": torch.randn(1, config.speaker_embedding_dim),
        "encoder_attention_mask": mask,
    }
    shapes = {
        "output_sequence": {1: "frames"},
        "encoder_hidden_states": {1: "source"},
        "past_key_values": past(lambda _, name: {2: name}),
        "speaker_embeddings": None,
        "encoder_attention_mask": {1: "source"},
    }
    names = (*fields, *present_names(kwargs["past_key_values"]))
    decoder = Part("decoder_model_merged", _Decoder(model).eval(), kwargs, shapes, names)
    spectrogram = {"spectrogram": torch.randn(_FRAMES, config.num_mel_bins)}
    sound = graph("decoder_postnet_and_vocoder", _Vocoder(model, vocoder), spectrogram, {"spectrogram": {0: "frames"}})
    return [encoder, decoder, sound]
