"""Replacements in models of transformers, which branch or loop on values of tensors or on sizes.

A cache layer with a sliding window keeps the last tokens and counts all tokens that it has seen. The layer's methods
and the functions that create masks branch on whether the window is full, so one captured program would be correct
either for a short or for a long past. The replacements compute the same without a branch.

Some models loop over the experts that a token chose, or ask whether a mask selects anything. Each replacement computes
the same without a branch.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor

from fx_onnx.capture.patches.patching import Patch

__all__ = ["PATCHES", "REDIRECTED"]

_CACHES, _MASKS = "transformers.cache_utils", "transformers.masking_utils"
_FASTSPEECH = "transformers.models.fastspeech2_conformer.modeling_fastspeech2_conformer"


def _update(self: Any, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    """Replaces ``DynamicSlidingWindowLayer.update``.

    Returns keys and values (batch, heads, held + new, size). The layer keeps only the last tokens.
    """
    if not self.is_initialized:
        self.lazy_initialization(key_states, value_states)
    self.cumulative_length += key_states.shape[-2]
    keys = torch.cat([self.keys, key_states], dim=-2)
    values = torch.cat([self.values, value_states], dim=-2)
    visible = self.sliding_window - 1 + (key_states.shape[-2] if self.record_past else 0)
    first = torch.sym_max(keys.shape[-2] - visible, 0)
    recent = keys[:, :, first:], values[:, :, first:]
    self.keys, self.values = (keys, values) if self.record_past else recent
    return recent if self.record_past else (keys, values)


def _get_mask_sizes(self: Any, query_length: int) -> tuple[int, int]:
    """Replaces ``DynamicSlidingWindowLayer.get_mask_sizes``.

    Returns the number of keys after the update, and the number of tokens that were dropped before the first key.
    """
    held = self.cumulative_length if self.record_past or not self.is_initialized else self.keys.shape[-2]
    held = torch.sym_min(held, self.sliding_window - 1)
    return held + query_length, self.cumulative_length - held


def _update_static(self: Any, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    """Replaces ``StaticSlidingWindowLayer.update``, which branches on whether the layer is full.

    Returns keys and values (batch, heads, max(window, held + new), size). The layer keeps the last ``window`` of them.
    """
    if not self.is_initialized:
        self.lazy_initialization(key_states, value_states)
    seen, new, window = self.cumulative_length_int, key_states.shape[-2], self.max_cache_len
    held = torch.sym_min(seen, window - 1)
    first = torch.sym_min(seen, window) - held  # a full layer drops its oldest token
    self.cumulative_length_int += new
    # transformers counts in the tensor only while the layer is not full
    self.cumulative_length.add_(new * (1 - torch.sym_max(torch.sym_min(seen + new - window, 1), 0)))
    results = []
    for cached, added in ((self.keys, key_states), (self.values, value_states)):
        empty = cached[:, :, torch.sym_min(held + new, window) :]
        joined = torch.cat([cached[:, :, first : first + held], added, empty], dim=-2)
        cached.copy_(joined[:, :, -window:])
        results.append(joined)
    return results[0], results[1]


def _get_static_mask_sizes(self: Any, query_length: int) -> tuple[int, int]:
    """Replaces ``StaticSlidingWindowLayer.get_mask_sizes``; returns what ``_get_mask_sizes`` returns."""
    seen, window = self.cumulative_length_int, self.max_cache_len
    held = torch.sym_min(seen, window - 1)
    return torch.sym_max(held + query_length, window), seen - held


def _needs_no_mask(padding_mask: Tensor | None, kv_length: Any, local_attention_size: int | None = None) -> bool:
    """Replaces ``_ignore_bidirectional_mask_sdpa``; returns what it returns outside a trace for no mask of padding.

    In a trace, it makes a mask for the new states of an encoder, which is too short if other keys are in a cache.
    """
    return padding_mask is None and local_attention_size is None


def _prepare_padding_mask(attention_mask: Tensor | None, kv_length: Any, kv_offset: Any) -> Tensor | None:
    """Replaces ``prepare_padding_mask``, which branches on whether the mask is shorter than a cache of a fixed size.

    Returns the mask (batch, tokens), padded on the right with zeros up to the last key.
    """
    if attention_mask is None:
        return None
    missing = kv_length + kv_offset - attention_mask.shape[-1]
    if isinstance(kv_length + kv_offset, int) and not isinstance(missing, int):
        missing = torch.sym_max(missing, 0)
    elif not missing > 0:
        return attention_mask
    return torch.nn.functional.pad(attention_mask, (0, missing))


def _create_recurrent_attention_mask(
    config: Any, inputs_embeds: Tensor, attention_mask: Tensor | None, past_key_values: Any = None, **_: Any
) -> Tensor | None:
    """Replaces ``create_recurrent_attention_mask``, which returns no mask for a sequence of one token.

    Returns the mask (batch, tokens) of the new tokens; a single token is never masked.
    """
    tokens = inputs_embeds.shape[1]
    if attention_mask is None or attention_mask.ndim != 2 or (isinstance(tokens, int) and tokens == 1):
        return None
    is_single = 2 - torch.sym_min(tokens, 2)  # 1 for one token, otherwise 0
    recent = attention_mask[:, -tokens:]
    return recent.masked_fill(torch.full((), is_single, device=recent.device) == 1, 1)


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
    frame = torch.arange(longest, device=ends.device)
    source = (frame[None, :, None] >= ends[:, None, :]).sum(-1)  # the number of embeddings that end before each frame
    inside = source < ends.shape[1]
    index = torch.where(inside, source, 0)[..., None].expand(-1, -1, encoded_embeddings.shape[2])
    return torch.where(inside[..., None], encoded_embeddings.gather(1, index).float(), 0.0)


def _encode_relative_positions(self: Any, feature_representation: Tensor) -> tuple[Tensor, Tensor]:
    """Replaces ``FastSpeech2ConformerRelPositionalEncoding.forward``, which compares the length with that of a table.

    Returns the scaled features (batch, time, size), and the encodings of the positions time - 1 to 1 - time.
    """
    time = feature_representation.size(1)
    shift = time - 1 - torch.arange(2 * time - 1, device=feature_representation.device).float()
    exponent = torch.arange(0, self.embed_dim, 2, device=shift.device).float() * -(math.log(10000.0) / self.embed_dim)
    angle = shift[:, None] * torch.exp(exponent)
    encoding = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[None].to(feature_representation.dtype)
    return self.dropout(feature_representation * self.input_scale), self.dropout(encoding)


def _shift_relative_positions(self: Any, pos_tensor: Tensor) -> Tensor:
    """Replaces ``FastSpeech2ConformerAttention.shift_relative_position_tensor``, which asks about views.

    Takes the scores of relative positions (batch, heads, time, 2 * time - 1); returns (batch, heads, query, key).
    """
    time = pos_tensor.shape[2]
    position = torch.arange(time, device=pos_tensor.device)
    index = position - position[:, None] + time - 1
    return pos_tensor.gather(-1, index.expand(pos_tensor.shape[0], pos_tensor.shape[1], -1, -1))


def _pad_for_same_size(features: Tensor, conv_layer: torch.nn.Conv2d) -> Tensor:
    """Replaces ``apply_tf_padding`` of MobileNet: one expression for the heights and widths that the stride divides.

    Pads (batch, channels, height, width) so that the convolution divides both by its stride, rounded up.
    """
    padding: list[Any] = []
    sizes = features.shape[2:], conv_layer.kernel_size, conv_layer.stride, conv_layer.dilation
    for size, kernel, stride, dilation in zip(*sizes, strict=True):
        added = max(kernel - 1 - (size - 1) % stride, 0)
        padding = [added // 2 * dilation, (added - added // 2) * dilation, *padding]
    return torch.nn.functional.pad(features, padding)


# --- masks: the model branches on whether they select anything --------------------------------------------------------

_ASKING = "modeling_ovis2.py"


def _any(self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Replaces ``Tensor.any``: returns a plain True in the module ``_ASKING``.

    The model asks whether any token is the placeholder of an image only to save work: without such a token, the work
    that follows writes to no element.
    """
    frame: Any = sys._getframe(1)
    while frame.f_code.co_name == "__torch_function__":  # of the modes of fx_onnx and torch
        frame = frame.f_back
    saves_work = frame.f_code.co_filename.endswith(_ASKING) and not args and not kwargs
    return numpy.True_ if saves_work else torch.Tensor.any(self, *args, **kwargs)


REDIRECTED: dict[Any, Callable[..., Any]] = {torch.Tensor.any: _any}
"""The function of torch that a model calls, and its replacement."""

_WINDOW = "The original branches on whether the window of the cache is full."
_CHOICE = "The original loops over the experts that some token chose."
_SIZES = "The original branches on sizes or durations."
PATCHES = (
    Patch(f"{_CACHES}:DynamicSlidingWindowLayer.update", _update, _WINDOW, versions="transformers>=5"),
    Patch(f"{_CACHES}:DynamicSlidingWindowLayer.get_mask_sizes", _get_mask_sizes, _WINDOW, versions="transformers>=5"),
    Patch(f"{_CACHES}:StaticSlidingWindowLayer.update", _update_static, _WINDOW, versions="transformers>=5"),
    Patch(
        f"{_CACHES}:StaticSlidingWindowLayer.get_mask_sizes",
        _get_static_mask_sizes,
        _WINDOW,
        versions="transformers>=5",
    ),
    Patch(
        f"{_MASKS}:_ignore_causal_mask_sdpa",
        lambda *_, **__: False,
        "The original always returns False in a trace, but compares sizes before that.",
        versions="transformers>=5",
    ),
    Patch(
        f"{_MASKS}:_ignore_bidirectional_mask_sdpa",
        _needs_no_mask,
        "The original makes a mask of the new keys only in a trace, where eager PyTorch has none.",
        versions="transformers>=5",
    ),
    Patch(
        "transformers.utils.deprecation:is_torchdynamo_compiling",
        lambda: True,
        "The original lets a warning tell the user the new name of an argument, whose old one names the inputs.",
        versions="transformers>=5",
    ),
    Patch(f"{_MASKS}:prepare_padding_mask", _prepare_padding_mask, _SIZES, versions="transformers>=5"),
    Patch(
        f"{_MASKS}:create_recurrent_attention_mask",
        _create_recurrent_attention_mask,
        "The original returns no mask for a sequence of one token.",
        versions="transformers>=5",
    ),
    Patch(
        "transformers.models.openai_privacy_filter.modeling_openai_privacy_filter:OpenAIPrivacyFilterExperts.forward",
        _privacy_filter_experts,
        _CHOICE,
    ),
    Patch(
        "transformers.models.longcat_flash.modeling_longcat_flash:LongcatFlashExperts.forward",
        _longcat_experts,
        _CHOICE,
    ),
    Patch(
        "transformers.models.encodec.modeling_encodec:EncodecConv1d.forward",
        _encodec_convolution,
        "The original computes the padding in tensors.",
    ),
    Patch(f"{_FASTSPEECH}:length_regulator", _repeat_by_durations, _SIZES),
    Patch(f"{_FASTSPEECH}:FastSpeech2ConformerRelPositionalEncoding.forward", _encode_relative_positions, _SIZES),
    Patch(
        f"{_FASTSPEECH}:FastSpeech2ConformerAttention.shift_relative_position_tensor",
        _shift_relative_positions,
        "The original asks whether tensors are views.",
    ),
    *(
        Patch(f"transformers.models.{name}.modeling_{name}:apply_tf_padding", _pad_for_same_size, _SIZES)
        for name in ("mobilenet_v1", "mobilenet_v2")
    ),
)
"""The replacements in transformers; those of caches are for the interface of version 5."""
