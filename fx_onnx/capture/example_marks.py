"""Keeps the example tensors as they are: torch.export writes the requested dims to attributes of these tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fx_onnx.core.torch_private import pytree

__all__ = ["keep_marks"]


@contextmanager
def keep_marks(example: Any) -> Iterator[None]:
    """Restores the Python attributes of all tensors in a pytree.

    torch.export marks the dims of its example as dynamic, and removes the marks only where it succeeds. A later export
    of the same tensors without dynamic dims would obey them.
    """
    before = [(vars(leaf), dict(vars(leaf))) for leaf in pytree.tree_leaves(example) if isinstance(leaf, torch.Tensor)]
    try:
        yield
    finally:
        for attributes, kept in before:
            for name in attributes.keys() - kept.keys():
                del attributes[name]
            attributes.update(kept)
