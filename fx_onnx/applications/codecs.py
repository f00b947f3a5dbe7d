"""The encoder of Mimi as a stream: a chunk of sound and states to codes and new states.

The codes of its chunks are those of the whole sound: a causal convolution keeps its last samples, and the attention the
keys and values of its window. All states have fixed sizes, and the first ones are zero.

Source: ``MimiModel`` of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fx_onnx.applications.parts import running
from fx_onnx.messages.errors import ArgumentError
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model.tolerances import Limits, distance_of
from fx_onnx.requests.pytrees import tensors_in

if TYPE_CHECKING:
    from transformers import MimiModel

__all__ = ["codec_stream", "load_codec"]

_CHUNKS, _TRIES, _NOISE = 4, 10, 1e-4
_SOUND = "input_values"


class _Padding:
    """Puts the last samples of a convolution before its next ones, as transformers' ``MimiConv1dPaddingCache`` does.

    Attributes:
        samples: the number of a convolution → its last samples (batch, channels, size), if it needs any.
        is_replicated: for each convolution, whether its first sample is repeated before it.
        is_first: bool (1), whether the chunk is the first.
    """

    def __init__(self, samples: dict[int, Tensor], convolutions: Sequence[Any], is_first: Tensor) -> None:
        self.samples, self.is_first = samples, is_first
        self.is_replicated = [conv.pad_mode == "replicate" for conv in convolutions]

    def update(self, new: Tensor, place: int) -> Tensor:
        """Returns the samples before those of a chunk (batch, channels, length), and keeps the last ones."""
        before = self.samples.get(place)
        if before is None:
            return new[..., :0]
        if self.is_replicated[place]:
            before = torch.where(self.is_first, new[..., :1], before)
        self.samples[place] = torch.cat([before, new], -1)[..., -before.shape[-1] :]
        return before


class _MimiEncoder(nn.Module):
    """Encodes a chunk with the sound before it."""

    def __init__(self, model: MimiModel) -> None:
        super().__init__()
        encoder: Any = model.encoder
        self.encoder, self.quantizer = encoder, model.quantizer
        first = encoder.encoder_seanet
        self.convolutions = [*map(first.get_submodule, first._conv1d_layer_names), encoder.downsample]
        self.sizes = [int(conv.padding_total) for conv in self.convolutions]
        self.kept = [place for place, size in enumerate(self.sizes) if size]

    def first_states(self, batch: int) -> dict[str, Any]:
        """Returns the states before the first chunk."""
        config, attention = self.encoder.config, self.encoder.encoder_transformer.layers
        shape = (batch, config.num_key_value_heads, config.sliding_window - 1, config.head_dim)
        return {
            "seen": torch.zeros(1, dtype=torch.int64),
            "keys": [torch.zeros(shape) for _ in attention],
            "values": [torch.zeros(shape) for _ in attention],
            "samples": [
                torch.zeros(batch, self.convolutions[place].in_channels, self.sizes[place]) for place in self.kept
            ],
        }

    def latents(
        self,
        input_values: Tensor,
        seen: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        samples: list[Tensor],
    ) -> tuple[Tensor, dict[str, Any]]:
        """Returns the latents (batch, size, frames) and the new states; the arguments are those of ``forward``."""
        from transformers import DynamicCache

        padding = _Padding(dict(zip(self.kept, samples, strict=True)), self.convolutions, seen == 0)
        frames = self.encoder.encoder_seanet(input_values, padding_cache=padding).transpose(1, 2)
        past: Any = DynamicCache(list(zip(keys, values, strict=True)))
        length = frames.shape[1]
        result = self.encoder.encoder_transformer(
            frames,
            attention_mask=self._mask(seen, length, frames.dtype),
            position_ids=(seen + torch.arange(length))[None],
            past_key_values=past,
            use_cache=True,
        ).last_hidden_state.transpose(1, 2)
        latents = self.encoder.downsample(result, padding_cache=padding)
        size = keys[0].shape[2]
        return latents, {
            "seen": seen + length,
            "keys": [layer.keys[:, :, -size:] for layer in past.layers],
            "values": [layer.values[:, :, -size:] for layer in past.layers],
            "samples": [padding.samples[place] for place in self.kept],
        }

    def forward(
        self, input_values: Tensor, seen: Tensor, keys: list[Tensor], values: list[Tensor], samples: list[Tensor]
    ) -> tuple[Any, ...]:
        """Returns the codes (batch, quantizers, frames), int64, and the new states.

        Args:
            input_values: (batch, channels, samples), a multiple of the samples of a frame.
            seen: int64 (1), the frames that the attention has read, of which there may be several for a code.
            keys: for each layer (batch, heads, window - 1, size).
            values: the same for the values.
            samples: what each convolution keeps, (batch, channels, size).
        """
        latents, states = self.latents(input_values, seen, keys, values, samples)
        return (self.quantizer.encode(latents).transpose(0, 1), *states.values())

    def _mask(self, seen: Tensor, length: int, dtype: torch.dtype) -> Tensor:
        """Returns the mask (1, 1, length, window - 1 + length), to be added: each frame reads a window up to itself."""
        window = self.encoder.config.sliding_window
        query = torch.arange(length)[:, None]
        key = torch.arange(window - 1 + length)[None] - (window - 1)  # from the first frame of the chunk
        reads = (key <= query) & (key > query - window) & (key >= -seen)
        return torch.zeros(()).to(dtype).masked_fill(~reads, torch.finfo(dtype).min)[None, None]


def load_codec(folder: Path) -> Any:
    """Returns the model of transformers in a folder, in float32."""
    import transformers

    return transformers.AutoModel.from_pretrained(folder, local_files_only=True, dtype=torch.float32)


_STATELESS = {
    "EncodecModel": "its convolutions and LSTM keep no state between calls",
    "MimiDecoderModel": "its transposed convolutions keep no state between calls",
}
"""A class of transformers → why its chunks are not those of the whole sound."""


def codec_stream(model: Any, given: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """Returns the module of a stream and its first inputs; other modules, and theirs, as they are.

    Args:
        model: a module.
        given: of Mimi, a chunk of sound, if any. The states are made here.

    Raises:
        ArgumentError: the chunks of a model are not those of the whole sound, or the chunk has no whole frames.
    """
    kind = type(model).__name__
    if kind in _STATELESS:
        raise ArgumentError(
            f"{kind} is no stream, because {_STATELESS[kind]}; export it for whole sounds with fx_onnx.export.",
            id=MessageId.MODEL_SOURCE,
        )
    if kind != "MimiModel":
        return model, given
    config, module = model.config, _MimiEncoder(model).eval()
    sound = given.get(_SOUND)
    if sound is not None and sound.shape[-1] % config.frame_size:
        raise ArgumentError(
            f"A chunk of Mimi must be a multiple of {config.frame_size} samples, not {sound.shape[-1]}.",
            id=MessageId.MODEL_SOURCE,
        )
    with running(model, "a chunk of sound"):
        sound = _example(module) if sound is None else sound
        first = module.first_states(len(sound))
        _check_chunks(module, sound, first)
    return module, {_SOUND: sound, **first}


def _example(module: _MimiEncoder) -> Tensor:
    """Returns a sound of a frame whose codes do not depend on rounding, if there is one among some random sounds.

    The size of its batch is none of the other sizes, so that the axis can be told.
    """
    others = {size for state in tensors_in(module.first_states(1)) for size in state.shape}
    batch = next(number for number in count(2) if number not in others)
    config = module.encoder.config
    for _ in range(_TRIES):
        sound = torch.randn(batch, config.audio_channels, config.frame_size)
        latents = module.encoder(_chunks(sound)).latents
        noise = torch.randn(_TRIES, *latents.shape) * latents.abs().max() * _NOISE
        codes = module.quantizer.encode(latents)
        if all(torch.equal(module.quantizer.encode(latents + each), codes) for each in noise):
            break
    return sound


def _chunks(sound: Tensor) -> Tensor:
    """Returns the chunks in a row with which a stream is compared."""
    return torch.cat([sound.roll(number, -1) for number in range(_CHUNKS)], -1)


def _check_chunks(module: _MimiEncoder, sound: Tensor, first: dict[str, Any]) -> None:
    """Compares the latents of some chunks with those of the whole sound, as transformers computes them.

    Raises:
        ArgumentError: they differ, as in another version of transformers.
    """
    whole, states, results = _chunks(sound), first, []
    for chunk in whole.chunk(_CHUNKS, -1):
        latents, states = module.latents(chunk, **states)
        results.append(latents)
    if problem := distance_of(module.encoder(whole).latents, torch.cat(results, -1), Limits(1e-3)).problem:
        raise ArgumentError(
            f"The chunks of this Mimi are not those of the whole sound: {problem}.", id=MessageId.MODEL_SOURCE
        )
