"""``resize_`` and ``resize_as_`` as views, where the result has no other elements than the tensor.

Both change the shape of a tensor and keep its memory. ATen does not define the elements of a larger result. Those of a
tensor that is not contiguous depend on its memory, which ONNX does not have.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from fx_onnx.core.operators import aten
from fx_onnx.core.symbolic_sizes import same_size, static
from fx_onnx.core.torch_private import OpOverload

RESIZES = frozenset({aten.resize_.default, aten.resize_as_.default})


def resized_view(node: Node) -> tuple[OpOverload, tuple[Any, ...]] | None:
    """Returns the view that a call of ``resize_`` or ``resize_as_`` takes, and its arguments after the tensor.

    Returns None if the result may have elements that the tensor does not have, if the tensor is not contiguous, or if
    it is an input or a buffer, whose new shape the caller would see.
    """
    tensor, sizes = node.args[:2]
    if not isinstance(tensor, Node) or tensor.op != "call_function":
        return None
    old, new = tensor.meta["val"], node.meta["val"]
    if node.kwargs.get("memory_format") not in (None, torch.contiguous_format) or not old.is_contiguous():
        return None
    if same_size(old.numel(), new.numel()):
        return (aten.view_as if isinstance(sizes, Node) else aten.view).default, (sizes,)
    before, after = static(old.numel()), [static(size) for size in new.shape]
    if not all(isinstance(each, int) for each in (before, *after)) or new.numel() > before:
        return None
    return aten.as_strided.default, (after, [static(stride) for stride in new.stride()])
