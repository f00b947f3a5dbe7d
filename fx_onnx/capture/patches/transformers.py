"""Patches for the decoders and state space models of transformers.

A cache layer with a sliding window keeps the last tokens and counts all tokens that it has seen. The layer's methods
and the functions that create masks branch on whether the window is full, so one captured program would be correct
either for a short or for a long past. The replacements compute the same without a branch.

State space models have a scan that works for any length, but they do not use it during an export.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from fx_onnx.capture.patches.patching import PatchTable, replace_attribute

__all__ = ["cache_patches", "keep_scan_operators"]

_CACHES, _MASKS = "transformers.cache_utils", "transformers.masking_utils"
_SCANS = [f"transformers.models.{name}.modeling_{name}" for name in ("falcon_mamba", "jamba", "mamba", "zamba")]
_EXPORTING = "is_torchdynamo_exporting"  # where it returns True, the scan is a Python loop over the example's tokens


def cache_patches() -> PatchTable:
    """Returns the patches for caches and masks; none for a version of transformers with a different cache interface."""
    if not _has_known_interface(sys.modules.get(_CACHES)):
        return {}
    masks = sys.modules.get(_MASKS)
    return {key: patch for key, patch in _CACHE_PATCHES.items() if key[0] != _MASKS or hasattr(masks, key[1])}


@contextmanager
def keep_scan_operators() -> Iterator[None]:
    """Makes state space models use their scan operator within the context."""
    with ExitStack() as stack:
        for module in (sys.modules[name] for name in _SCANS if name in sys.modules):
            if hasattr(module, _EXPORTING):
                stack.enter_context(replace_attribute(module, _EXPORTING, lambda: False))
        yield


def _has_known_interface(caches: Any) -> bool:
    """Returns whether cache layers have the method parameters of transformers 5, which differ from version 4."""
    method = getattr(getattr(caches, "DynamicSlidingWindowLayer", None), "get_mask_sizes", None)
    return method is not None and "query_length" in inspect.signature(method).parameters


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


def _ignore_causal_mask_sdpa(*_: Any, **__: Any) -> bool:
    """Replaces ``_ignore_causal_mask_sdpa``, which always returns False in a trace but compares sizes before that."""
    return False


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
    recent = attention_mask[:, -tokens:].contiguous()
    if isinstance(tokens, int):
        return recent
    is_single = 2 - torch.sym_min(tokens, 2)  # 1 for one token, otherwise 0
    return recent.masked_fill(torch.full((), is_single, device=recent.device) == 1, 1)


_CACHE_PATCHES: PatchTable = {
    (_CACHES, "DynamicSlidingWindowLayer.update"): _update,
    (_CACHES, "DynamicSlidingWindowLayer.get_mask_sizes"): _get_mask_sizes,
    (_CACHES, "StaticSlidingWindowLayer.update"): _update_static,
    (_CACHES, "StaticSlidingWindowLayer.get_mask_sizes"): _get_static_mask_sizes,
    (_MASKS, "_ignore_causal_mask_sdpa"): _ignore_causal_mask_sdpa,
    (_MASKS, "prepare_padding_mask"): _prepare_padding_mask,
    (_MASKS, "create_recurrent_attention_mask"): _create_recurrent_attention_mask,
}
