"""Patch for fastai's ``ToTensorBase``, a layer of ``DynamicUnet``.

It converts a tensor to ``TensorBase``, a subclass of Tensor that keeps Python attributes from operation to operation
and computes what Tensor computes. torch cannot convert the fake tensors of a capture to a subclass, so they stay plain.
"""

from __future__ import annotations

from torch import Tensor, nn

from fx_onnx.capture.patches.patching import PatchTable

__all__ = ["PATCHES"]


def _to_tensor_base(self: nn.Module, x: Tensor) -> Tensor:
    """Replaces ``ToTensorBase.forward``."""
    return x


PATCHES: PatchTable = {("fastai.layers", "ToTensorBase.forward"): _to_tensor_base}
