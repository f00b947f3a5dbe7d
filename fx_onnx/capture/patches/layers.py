"""Replacements for layers of torch that compute with padded batches.

For inference, ``nn.TransformerEncoder`` packs a padded batch into a nested tensor, runs the layers on it, and pads the
result with zeros. torch.export captures the layers on the padded batch instead, whose results in the padding are other
numbers. Here they are zeros too. What packs sequences for an RNN, LSTM or GRU is in the room ``packed_sequences``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import rnn

from fx_onnx.capture.patches.patching import Around, Patch
from fx_onnx.extension_points.rooms import find
from fx_onnx.onnx_model.weights import is_subclass

__all__ = ["PATCHES", "torch_pack", "torch_pad"]

torch_pack, torch_pad = rnn.pack_padded_sequence, rnn.pad_packed_sequence
_torch_encoder = nn.TransformerEncoder.forward


def _in_room(name: str, *args: Any, **kwargs: Any) -> Any:
    """Calls the replacement of a function in the room of packed sequences."""
    return find("capture", name)(*args, **kwargs)


def _recurrent(torch_forward: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the forward of an RNN, LSTM or GRU module that also accepts what ``pack_padded_sequence`` returns."""

    def forward(self: nn.RNNBase, input: Any, hx: Any = None) -> Any:
        if isinstance(input, rnn.PackedSequence):
            return _in_room("recurrent layers", torch_forward, self, input, hx)
        return torch_forward(self, input, hx)

    return forward


def _encoder_forward(
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
        return _torch_encoder(self, src, mask, src_key_padding_mask, is_causal)
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


_PACKED = "torch reads in Python how many sequences are active at each step."
PATCHES = (
    *(
        Patch(f"torch.nn.utils.rnn:{name}", partial(_in_room, name), _PACKED, strict=False)
        for name in ("pack_padded_sequence", "pad_packed_sequence")
    ),
    *(
        Patch(f"torch.nn.modules.rnn:{kind.__name__}.forward", Around(_recurrent), _PACKED, strict=False, layer=kind)
        for kind in (nn.RNN, nn.LSTM, nn.GRU)
    ),
    Patch(
        "torch.nn.modules.transformer:TransformerEncoder.forward",
        _encoder_forward,
        "torch captures other numbers in the padding than it computes.",
        layer=nn.TransformerEncoder,
    ),
)
"""The functions and layers of torch that pack sequences."""
