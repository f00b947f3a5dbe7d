"""The private names of dynamo that a capture needs, each with the reason and what happens without it."""

from __future__ import annotations

import sys
from typing import Any

import torch

__all__ = ["TRACING_MODULES", "hide_marks", "uncompiled"]

TRACING_MODULES = (
    "torch._dynamo.", "torch._export.", "torch._functorch.", "torch._higher_order_ops.", "torch.export.", "torch.fx.",
)  # fmt: skip
"""How the names of the modules begin in which torch traces a forward. An error that one of them raises is about the
trace; torch has no common base class for these errors. Without a name, such an error counts as the forward's own.
"""

_MARKS = ("_dynamo_", "_has_dynamo_dim_marking", "_specialize_on")  # how the names of the attributes begin


def hide_marks(tensor: torch.Tensor) -> None:
    """Removes what ``mark_dynamic``, ``mark_static`` or an export that failed wrote to a tensor.

    A capture obeys these attributes beside dynamic_shapes, and torch has no public function that removes them. Does
    nothing if torch writes attributes of other names; then a capture obeys them.
    """
    for name in [name for name in vars(tensor) if name.startswith(_MARKS)]:
        del vars(tensor)[name]


def uncompiled(model: Any) -> Any:
    """Returns the module that ``torch.compile`` wrapped, or the model itself if it is no wrapper.

    A wrapper does not tell the parameters of the module's forward. One with hooks of its own stays, because they
    compute. A model stays as it is where torch lacks the class; then its inputs are ``args_0`` and so on.
    """
    wrapper = getattr(sys.modules.get("torch._dynamo.eval_frame"), "OptimizedModule", ())
    has_hooks = isinstance(model, wrapper) and (model._forward_hooks or model._forward_pre_hooks)
    return model._orig_mod if isinstance(model, wrapper) and not has_hooks else model
