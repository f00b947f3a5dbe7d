"""Keeps the example tensors as they are: torch.export reads and writes attributes of these tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fx_onnx.core.dynamo_private import hide_marks
from fx_onnx.core.torch_private import pytree

__all__ = ["keep_marks"]


@contextmanager
def keep_marks(example: Any) -> Iterator[None]:
    """Hides the marks of all tensors in a pytree, and restores all their Python attributes afterwards.

    torch.export marks the dims of its example as dynamic, and removes the marks only where it succeeds. A later export
    of the same tensors would obey them, as well as those of ``mark_dynamic``, instead of its dynamic_shapes alone.
    """
    tensors = [leaf for leaf in pytree.tree_leaves(example) if isinstance(leaf, torch.Tensor)]
    before = [(vars(tensor), dict(vars(tensor))) for tensor in tensors]
    for tensor in tensors:
        hide_marks(tensor)
    try:
        yield
    finally:
        for attributes, kept in before:
            attributes.clear()
            attributes.update(kept)
