"""Reads and writes of tensors at indices that Python would read: 0-d masks and positions, and masks of bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fx_onnx.torch_internals.torch_differences import has
from fx_onnx.torch_internals.torch_private import is_wrapped
from fx_onnx.torch_internals.trace_private import is_recorded

__all__ = ["INDEXING", "index_tensor"]

INDEXING = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)
"""The functions that ``index_tensor`` replaces."""
_PARTS = (int, slice, torch.SymInt, torch.Tensor, type(None), type(...))


def index_tensor(function: Callable[..., Any], input: torch.Tensor, index: Any, *value: Any) -> Any:
    """Replaces reads and writes at an index: Python reads the value of a 0-d mask, and some of those of 0-d positions.

    A 0-d mask becomes a mask of a new first axis. A 0-d position selects first, and the other parts of the index apply
    to the view. torch has no kernels for masks of bytes without values.
    """
    index = _with_masks_of_bools(index)
    if _is_0d(index) and index.dtype == torch.bool:
        return function(input.unsqueeze(0), index.reshape(1), *value)
    parts = index if isinstance(index, tuple) else (index,)
    if has("tensors as bounds are read"):
        parts = tuple(map(_with_numbers, parts))
        index = parts if isinstance(index, tuple) else parts[0]
    positions = (first for first, part in enumerate(parts) if _is_position(part) and (value or is_recorded(part)))
    first = next(positions, None)
    if first is None or not all(isinstance(part, _PARTS) for part in parts):
        return function(input, index, *value)
    counts = [_indexed_axes(part) for part in parts]
    axis = input.ndim - sum(counts[first:]) if any(part is ... for part in parts[:first]) else sum(counts[:first])
    view = torch.select(input, axis, parts[first].item())
    rest = (*parts[:first], *parts[first + 1 :])
    return index_tensor(function, view, rest, *value) if rest or value else view


def _with_numbers(part: Any) -> Any:
    """Returns a slice with a number for each bound that is a tensor, and any other part of an index as it is."""
    if not isinstance(part, slice):
        return part
    bounds = (part.start, part.stop, part.step)
    return slice(*(bound.item() if _is_0d(bound) and is_recorded(bound) else bound for bound in bounds))


def _with_masks_of_bools(index: Any) -> Any:
    """Returns the same index with a bool for each byte."""
    if type(index) in (list, tuple):
        return type(index)(map(_with_masks_of_bools, index))
    return index.bool() if isinstance(index, torch.Tensor) and index.dtype == torch.uint8 else index


def _indexed_axes(part: Any) -> int:
    """Returns the number of axes that a part of an index applies to; an ellipsis, which has no number, counts as 0."""
    if isinstance(part, torch.Tensor) and part.dtype == torch.bool:
        return part.ndim
    return 0 if part is None or part is ... or isinstance(part, bool) else 1


def _is_position(part: Any) -> bool:
    """Returns whether a part of an index is a number in a 0-d tensor, which no transform of torch.func has wrapped."""
    return _is_0d(part) and part.dtype != torch.bool and not is_wrapped(part)


def _is_0d(index: Any) -> bool:
    return isinstance(index, torch.Tensor) and index.ndim == 0
