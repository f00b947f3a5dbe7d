"""Patches for functions of torch whose calls no mode sees: one is called for bools, one refuses symbolic bools."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as _torch_attention

from fx_onnx.capture.patches.patching import Patch
from fx_onnx.core.torch_private import pytree

__all__ = ["PATCHES"]


def scaled_dot_product_attention(*args: Any, **kwargs: Any) -> Tensor:
    """Replaces ``scaled_dot_product_attention``: a symbolic ``is_causal``, which it refuses, is that of the example."""
    args, kwargs = pytree.tree_map_only(torch.SymBool, bool, (args, kwargs))
    return _torch_attention(*args, **kwargs)


def _assert(condition: Any, message: Any) -> None:
    """Replaces ``torch._assert``: torch 2.15 records an operator, also where the model catches the exception."""
    if not condition:
        raise AssertionError(message)


PATCHES = (
    Patch("torch:_assert", _assert, "torch 2.15 records an operator.", strict=False),
    Patch(
        "torch.nn.functional:scaled_dot_product_attention",
        scaled_dot_product_attention,
        "It refuses a symbolic is_causal before a mode sees the call.",
        strict=False,
    ),
)
