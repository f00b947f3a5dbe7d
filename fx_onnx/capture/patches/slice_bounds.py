"""Keeps the size of a slice an expression of sizes where torch does not know the sign of a bound.

The number of rows of `x[n - 3:]` is an expression for every n. torch gives it a new symbol, which nothing relates to n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from fx_onnx.capture.patches.patching import replace_attribute
from fx_onnx.core.guard_private import slice_bound_function, without_remainders
from fx_onnx.core.torch_private import free_unbacked_symbols, statically_known_true

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
        bound: torch's own function. It returns None if it does not know whether the index is negative.
        size: The size of the axis.
        index: The index in the slice; negative from the end.
    """
    multiple = without_remainders(index)
    if statically_known_true(index <= size) and statically_known_true(multiple >= 0):
        return multiple
    position = bound(size, index)
    if position is not None or free_unbacked_symbols((size, index)):
        return position
    is_negative = torch.sym_min(torch.sym_max(-index, 0), 1)
    return torch.sym_min(torch.sym_max(index, 0), size) + is_negative * torch.sym_max(index + size, 0)
