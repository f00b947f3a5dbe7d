"""Keeps the size of a slice symbolic where a bound of the slice is a plain number.

`x[:, :10]` has 10 columns, or fewer if ``x`` has fewer. torch decides by the example whether the bound is within the
tensor, and records a guard, so the result has 10 columns for all sizes. Here the result has ``min(10, n)`` columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.core.guard_private import slice_bound_function
from fx_onnx.core.torch_private import statically_known_true

__all__ = ["keep_slices_symbolic"]


@contextmanager
def keep_slices_symbolic() -> Iterator[None]:
    """Replaces torch's rule for the bounds of slices within the context, in the current thread."""
    found = slice_bound_function()
    if found is None:
        yield
        return
    with replace_attribute(*found, partial(_bound, getattr(*found))):
        yield


def _bound(bound: Callable[[Any, Any], Any], size: Any, index: Any) -> Any:
    """Returns the position of a bound of a slice in an axis: between 0 and the size of the axis.

    Args:
        bound: torch's own function, for a symbolic index and for a size that is a number.
        size: The size of the axis.
        index: The index in the slice; negative from the end.
    """
    if not isinstance(size, torch.SymInt) or not isinstance(index, int):
        return bound(size, index)
    count = index if index >= 0 else -index
    within = count if statically_known_true(size >= count) else torch.sym_min(size, count)
    return within if index >= 0 else size - within
