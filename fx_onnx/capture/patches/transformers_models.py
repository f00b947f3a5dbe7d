"""Patches for models of transformers that branch or loop on values of tensors, which torch.export cannot capture.

Each replacement computes the same without a branch. A version of transformers without the method has no replacement,
and its model is refused as torch.export refuses it.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor

from fx_onnx.capture.patches.patching import PatchTable

__all__ = ["model_patches"]


def model_patches() -> PatchTable:
    """Returns the patches for the functions and methods that the imported version of transformers has."""
    found = {place: patch for place, patch in _PATCHES.items() if _exists(*place)}
    return {**found, **_OVIS2_PATCHES} if f"{_MODELS}.ovis2.modeling_ovis2" in sys.modules else found


def _exists(module: str, path: str) -> bool:
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found is not None


# --- mixtures of experts, which loop over the experts that some token chose -------------------------------------------


def _privacy_filter_experts(
    self: Any, hidden_states: Tensor, router_indices: Tensor, routing_weights: Tensor
) -> Tensor:
    """Replaces ``OpenAIPrivacyFilterExperts.forward``: computes in float32 with the weights of each token's experts.

    Args:
        self: The module.
        hidden_states: (tokens, size)
        router_indices: The experts that each token chose, (tokens, chosen).
        routing_weights: (tokens, chosen)
    """
    gate_up = torch.einsum("th,tchi->tci", hidden_states.float(), self.gate_up_proj[router_indices].float())
    gated = self._apply_gate(gate_up + self.gate_up_proj_bias[router_indices].float()).float()
    out = torch.einsum("tci,tcih->tch", gated, self.down_proj[router_indices].float())
    out = out + self.down_proj_bias[router_indices].float()
    result: Tensor = (out * routing_weights[..., None].float()).sum(1).to(hidden_states.dtype)
    return result


def _longcat_experts(self: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """Replaces ``LongcatFlashExperts.forward``. The last experts have no weights and return the token itself.

    Args:
        self: The module.
        hidden_states: (tokens, size)
        top_k_index: The experts that each token chose, (tokens, chosen).
        top_k_weights: (tokens, chosen)
    """
    tokens = hidden_states[:, None]
    out = tokens
    if self.num_routed_experts > 0:
        chosen = top_k_index.clamp(max=self.num_routed_experts - 1)
        gate, up = torch.einsum("th,tcih->tci", hidden_states, self.gate_up_proj[chosen]).chunk(2, dim=-1)
        routed = torch.einsum("tci,tchi->tch", self.act_fn(gate) * up, self.down_proj[chosen])
        out = torch.where(top_k_index[..., None] < self.num_routed_experts, routed, tokens)
    return (out * top_k_weights[..., None]).to(hidden_states.dtype).sum(1)


# --- speech -----------------------------------------------------------------------------------------------------------


def _encodec_convolution(self: Any, hidden_states: Tensor) -> Tensor:
    """Replaces ``EncodecConv1d.forward``, which computes the padding of (batch, channel, time) in tensors."""
    window, step = (self.conv.kernel_size[0] - 1) * self.conv.dilation[0] + 1, self.conv.stride[0]
    total, length = window - step, hidden_states.shape[-1]
    extra = (length - window + total + step - 1) // step * step + window - total - length
    left, right = (total, extra) if self.causal else (total - total // 2, total // 2 + extra)
    if self.pad_mode == "reflect":  # a signal that is shorter than its padding gets zeros first, which are cut again
        zeros = torch.sym_max(torch.sym_max(left, right) - length + 1, 0)
        padded = torch.nn.functional.pad(torch.nn.functional.pad(hidden_states, (0, zeros)), (left, right), "reflect")
        padded = padded[..., : padded.shape[-1] - zeros]
    else:
        padded = torch.nn.functional.pad(hidden_states, (left, right), self.pad_mode, 0.0)
    result: Tensor = self.conv(padded)
    if self.norm_type == "time_group_norm":
        result = self.norm(result)
    return result


def _repeat_by_durations(encoded_embeddings: Tensor, duration_labels: Tensor, speaking_speed: float = 1.0) -> Tensor:
    """Replaces ``length_regulator`` of FastSpeech2Conformer, which branches on the durations.

    Args:
        encoded_embeddings: (batch, text, size)
        duration_labels: How often each embedding is repeated, (batch, text). If all are 0, they become 1 in place.
        speaking_speed: A factor for the durations.

    Returns:
        (batch, the longest sum of durations, size), padded with zeros.
    """
    if speaking_speed <= 0:
        raise ValueError("`speaking_speed` must be greater than 0.")
    if speaking_speed != 1.0:
        duration_labels = torch.round(duration_labels.float() * speaking_speed).long()
    duration_labels.masked_fill_(duration_labels.sum() == 0, 1)
    ends = duration_labels.cumsum(1)
    longest: Any = ends[:, -1].max().item()
    torch._check(longest >= 0)
    place = torch.arange(longest, device=ends.device)
    source = (place[None, :, None] >= ends[:, None, :]).sum(-1)  # the number of embeddings that end before each place
    inside = source < ends.shape[1]
    index = torch.where(inside, source, 0)[..., None].expand(-1, -1, encoded_embeddings.shape[2])
    return torch.where(inside[..., None], encoded_embeddings.gather(1, index).float(), 0.0)


def _encode_relative_positions(self: Any, feature_representation: Tensor) -> tuple[Tensor, Tensor]:
    """Replaces ``FastSpeech2ConformerRelPositionalEncoding.forward``, which compares the length with that of a table.

    Returns the scaled features (batch, time, size), and the encodings of the positions time - 1 to 1 - time.
    """
    time = feature_representation.size(1)
    place = time - 1 - torch.arange(2 * time - 1, device=feature_representation.device).float()
    exponent = torch.arange(0, self.embed_dim, 2, device=place.device).float() * -(math.log(10000.0) / self.embed_dim)
    angle = place[:, None] * torch.exp(exponent)
    encoding = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[None].to(feature_representation.dtype)
    return self.dropout(feature_representation * self.input_scale), self.dropout(encoding)


def _shift_relative_positions(self: Any, pos_tensor: Tensor) -> Tensor:
    """Replaces ``FastSpeech2ConformerAttention.shift_relative_position_tensor``, which asks about views.

    Takes the scores of relative positions (batch, heads, time, 2 * time - 1); returns (batch, heads, query, key).
    """
    time = pos_tensor.shape[2]
    place = torch.arange(time, device=pos_tensor.device)
    index = place - place[:, None] + time - 1
    return pos_tensor.gather(-1, index.expand(pos_tensor.shape[0], pos_tensor.shape[1], -1, -1))


# --- masks: the model branches on whether they select anything --------------------------------------------------------

_ASKING = "modeling_ovis2.py"


def _any(original: Callable[..., Any], self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Replaces ``Tensor.any``: returns a plain True in the module ``_ASKING``.

    The model asks whether any token is the placeholder of an image only to save work: without such a token, the work
    that follows writes to no element.
    """
    frame: Any = sys._getframe(1)
    while frame.f_code.co_name == "dispatcher":  # the dispatcher of the replacement
        frame = frame.f_back
    saves_work = frame.f_code.co_filename.endswith(_ASKING) and not args and not kwargs
    return numpy.True_ if saves_work else original(self, *args, **kwargs)


_MODELS = "transformers.models"
_PATCHES: PatchTable = {
    (
        f"{_MODELS}.openai_privacy_filter.modeling_openai_privacy_filter",
        "OpenAIPrivacyFilterExperts.forward",
    ): _privacy_filter_experts,
    (f"{_MODELS}.longcat_flash.modeling_longcat_flash", "LongcatFlashExperts.forward"): _longcat_experts,
    (f"{_MODELS}.encodec.modeling_encodec", "EncodecConv1d.forward"): _encodec_convolution,
    (
        f"{_MODELS}.fastspeech2_conformer.modeling_fastspeech2_conformer",
        "length_regulator",
    ): _repeat_by_durations,
    (
        f"{_MODELS}.fastspeech2_conformer.modeling_fastspeech2_conformer",
        "FastSpeech2ConformerRelPositionalEncoding.forward",
    ): _encode_relative_positions,
    (
        f"{_MODELS}.fastspeech2_conformer.modeling_fastspeech2_conformer",
        "FastSpeech2ConformerAttention.shift_relative_position_tensor",
    ): _shift_relative_positions,
}
_OVIS2_PATCHES: PatchTable = {
    ("torch", "Tensor.any"): functools.wraps(torch.Tensor.any)(functools.partial(_any, torch.Tensor.any)),
}
