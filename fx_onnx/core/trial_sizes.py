"""Tries sizes that the example does not have: tensors of these sizes, and the conditions that torch recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch

__all__ = ["is_false", "resized"]


def is_false(condition: Any, sizes: Mapping[sympy.Symbol, sympy.Integer]) -> bool:
    """Returns whether a sympy condition is false for these sizes. It is not where it is undefined."""
    try:
        return condition.xreplace(sizes) is sympy.false
    except ZeroDivisionError:  # the condition is undefined for these sizes
        return False


def resized(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Returns a copy whose axes are cut, or repeat their values; an empty axis becomes zeros."""
    for axis, size in enumerate(shape):
        old = tensor.shape[axis]
        if old:
            tensor = tensor.index_select(axis, torch.arange(size, device=tensor.device) % old)
        elif size:
            tensor = tensor.new_zeros([*tensor.shape[:axis], size, *tensor.shape[axis + 1 :]])
    return tensor.clone()
