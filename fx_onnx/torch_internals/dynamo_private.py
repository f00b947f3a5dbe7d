"""The private names of dynamo that a capture needs, each with the reason and what happens without it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from fx_onnx.torch_internals.threads import restore_items

__all__ = ["TRACING_MODULES", "keep_marks", "uncompiled"]

TRACING_MODULES = (
    "torch._dynamo.", "torch._export.", "torch._functorch.", "torch._higher_order_ops.", "torch.export.", "torch.fx.",
)  # fmt: skip
"""How the names of the modules begin in which torch traces a forward. An error that one of them raises is about the
trace; torch has no common base class for these errors. Without a name, such an error counts as the forward's own.
"""

_MARKS = ("_dynamo_", "_has_dynamo_dim_marking", "_specialize_on")  # how the names of the attributes begin


@contextmanager
def keep_marks(example: Any) -> Iterator[None]:
    """Hides the marks of all tensors in a pytree, and restores all their Python attributes afterwards.

    torch.export marks the dims of its example as dynamic, and removes the marks only where it succeeds. A later export
    of the same tensors would obey them, as well as those of ``mark_dynamic`` and ``mark_static``, instead of its
    dynamic_shapes alone, and torch has no public function that removes them. Nothing is hidden if torch writes
    attributes of other names; then a capture obeys them.
    """
    tensors = [vars(leaf) for leaf in tree_leaves(example) if isinstance(leaf, torch.Tensor)]
    before = [(attributes, dict(attributes)) for attributes in tensors]
    try:
        for attributes, kept in before:
            for name in kept:
                if name.startswith(_MARKS):
                    attributes.pop(name, None)
        yield
    finally:
        for attributes, kept in before:
            restore_items(attributes, kept)


def uncompiled(model: Any) -> Any:
    """Returns the module that ``torch.compile`` wrapped, or the model itself if it is no wrapper.

    A wrapper does not tell the parameters of the module's forward. One with hooks of its own stays, because they
    compute. A model stays as it is where torch lacks the class; then its inputs are ``args_0`` and so on.
    """
    wrapper = getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", ())
    has_hooks = isinstance(model, wrapper) and (model._forward_hooks or model._forward_pre_hooks)
    return model._orig_mod if isinstance(model, wrapper) and not has_hooks else model
