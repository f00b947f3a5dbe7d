"""The modules that compute the features of sounds, from the inputs that onnxruntime-genai gives to ``speech``."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn

from fx_onnx.capture.patches.patching import replace_attribute

__all__ = ["FramesOfSound"]


class FramesOfSound(nn.Module):
    """Computes the features of one sound of Gemma 4, of which no frame is padding."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.tower, self.embed = model.model.audio_tower, model.model.embed_audio

    def forward(self, audio_embeds: Tensor) -> dict[str, Tensor]:
        """(1, frames, bands) to (tokens, size)."""
        code: Any = sys.modules[type(self.tower).__module__]
        # The steps of transformers compare sizes in a way that torch.export cannot solve.
        with (
            replace_attribute(code, "create_bidirectional_mask", lambda *, inputs_embeds, **_: inputs_embeds),
            replace_attribute(type(self.tower), "_convert_4d_mask_to_blocked_5d", _mask),
        ):
            states = self.tower(audio_embeds, torch.ones_like(audio_embeds[..., 0], dtype=torch.bool))
        return {"audio_features": self.embed(inputs_embeds=states.last_hidden_state).flatten(0, 1)}


def _mask(tower: Any, states: Tensor) -> Tensor:
    """Returns what a frame does not read as 1: (1, 1, blocks, frames in a block, frames around them).

    Args:
        tower: the encoder, whose attention computes blocks of frames.
        states: (1, frames, size).
    """
    config, count = tower.config, states.shape[1]
    size, before, after = config.attention_chunk_size, config.attention_context_left - 1, config.attention_context_right
    first = torch.arange((count + size - 1) // size)[:, None, None] * size
    key = first + torch.arange(before + size + after) - before
    distance = first + torch.arange(size)[:, None] - key
    reads = torch.where(distance >= 0, distance < before, -distance < after) & (key >= 0) & (key < count)
    mask: Tensor = (~reads).to(states.dtype)
    return mask[None, None]
