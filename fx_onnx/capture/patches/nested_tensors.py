"""Patch for ``nn.TransformerEncoder`` with padding: the captured graph has zeros where torch's nested tensors do.

For inference, torch packs a padded batch into a nested tensor, runs the layers on it, and pads the result with zeros.
torch.export captures the layers on the padded batch instead, whose results in the padding are other numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fx_onnx.capture.patches.patching import PatchTable
from fx_onnx.core.weights import is_subclass

__all__ = ["PATCHES"]

_torch_forward = nn.TransformerEncoder.forward


def _forward(
    self: nn.TransformerEncoder,
    src: Tensor,
    mask: Tensor | None = None,
    src_key_padding_mask: Tensor | None = None,
    is_causal: bool | None = None,
) -> Tensor:
    """Returns what the module returns without gradients: zeros, or the norm of zeros, in the padding.

    torch makes a nested tensor only of a batch whose rows all end with their padding. ``mask_check=False`` tells torch
    that they do; then it only counts the padding of each row.
    """
    if src_key_padding_mask is None or mask is not None or not _makes_nested_tensors(self, src):
        return _torch_forward(self, src, mask, src_key_padding_mask, is_causal)
    padding = src_key_padding_mask.bool()
    ends = torch.arange(src.shape[1], device=src.device) >= (~padding).sum(1, keepdim=True)
    if not self.mask_check:
        padding = ends
    zeros = padding & (padding == ends).all()
    for layer in self.layers:
        src = layer(src, is_causal=bool(is_causal), src_key_padding_mask=padding)
    src = src.masked_fill(zeros.unsqueeze(-1), 0.0)
    return src if self.norm is None else self.norm(src)


def _makes_nested_tensors(encoder: nn.TransformerEncoder, src: Tensor) -> bool:
    """Returns whether the forward makes a nested tensor of a padded batch, as in torch/nn/modules/transformer.py."""
    first: Any = encoder.layers[0]
    return (
        encoder.use_nested_tensor
        and torch.backends.mha.get_fastpath_enabled()
        and not first.training
        and src.dim() == 3
        and not torch.is_autocast_enabled()
        and not any(map(is_subclass, first.parameters()))
    )


PATCHES: PatchTable = {("torch.nn.modules.transformer", "TransformerEncoder.forward"): _forward}
"""The replacement of the forward of ``nn.TransformerEncoder``."""
