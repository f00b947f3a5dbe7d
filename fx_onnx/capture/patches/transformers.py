"""What stands for functions of transformers' decoders while torch captures them.

A cache's layer with a sliding window keeps its last tokens and counts all that it has seen. Its own methods, and those
that make masks, ask whether the window is full, so that one captured program would serve either the short or the long
past. These say the same without a question. State space models have a scan of any length, but keep it from exporters.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from fx_onnx.capture.export_flag import replaced
from fx_onnx.capture.patches.patching import Patches

__all__ = ["patches", "scans_kept"]

_CACHES, _MASKS = "transformers.cache_utils", "transformers.masking_utils"
_SCANS = [f"transformers.models.{name}.modeling_{name}" for name in ("falcon_mamba", "jamba", "mamba", "zamba")]
_EXPORTING = "is_torchdynamo_exporting"  # their scan is a loop of Python over the example's tokens where it says so


def patches() -> Patches:
    """What stands for the functions of caches and masks; nothing where transformers' caches are not those known."""
    return _STAND_INS if _is_known(sys.modules.get(_CACHES)) else {}


@contextmanager
def scans_kept() -> Iterator[None]:
    """Lets state space models use their scan for as long as this lasts."""
    with ExitStack() as stack:
        for module in (sys.modules[name] for name in _SCANS if name in sys.modules):
            if hasattr(module, _EXPORTING):
                stack.enter_context(replaced(module, _EXPORTING, lambda: False))
        yield


def _is_known(caches: Any) -> bool:
    """Whether the library's caches are called as here; those of its fourth version were called otherwise."""
    method = getattr(getattr(caches, "DynamicSlidingWindowLayer", None), "get_mask_sizes", None)
    return method is not None and "query_length" in inspect.signature(method).parameters


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


_STAND_INS: Patches = {
    (_CACHES, "DynamicSlidingWindowLayer.update"): _update,
    (_CACHES, "DynamicSlidingWindowLayer.get_mask_sizes"): _get_mask_sizes,
    (_MASKS, "_ignore_causal_mask_sdpa"): _ignore_causal_mask_sdpa,
}
