"""What stands for methods of transformers' cache layers with a sliding window, and their masks, while torch captures.

A layer keeps the last tokens of its window and counts all that it has seen. Its own methods ask whether the window is
full, so that one captured program would serve either the short or the long past. These say the same without a question.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from fx_onnx.stand_ins import standing_in

__all__ = ["any_length_of_past"]


def any_length_of_past() -> AbstractContextManager[None]:
    """Replaces the methods for as long as this lasts; there are none where transformers was not imported."""
    return standing_in(_STAND_INS)


def _update(self: Any, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
    """``DynamicSlidingWindowLayer.update``: keys and values (batch, heads, held + new, size); the last stay."""
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
    """``DynamicSlidingWindowLayer.get_mask_sizes``: how many keys there will be, and how many came before the first."""
    held = self.cumulative_length if self.record_past or not self.is_initialized else self.keys.shape[-2]
    held = torch.sym_min(held, self.sliding_window - 1)
    return held + query_length, self.cumulative_length - held


def _ignore_causal_mask_sdpa(*_: Any, **__: Any) -> bool:
    """While it is traced the function never ignores the mask, but before it says so it compares sizes."""
    return False


_STAND_INS: dict[tuple[str, str], Callable[..., Any]] = {
    ("transformers.cache_utils", "DynamicSlidingWindowLayer.update"): _update,
    ("transformers.cache_utils", "DynamicSlidingWindowLayer.get_mask_sizes"): _get_mask_sizes,
    ("transformers.masking_utils", "_ignore_causal_mask_sdpa"): _ignore_causal_mask_sdpa,
}
