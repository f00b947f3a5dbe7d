"""Scaled dot-product attention."""

import torch
from onnx_ir import Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.sizes import symbolic_sizes
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter


def _is_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    enable_gqa: bool = False,
) -> bool:
    """Returns whether ONNX Attention can express the call.

    It has no dropout, does not broadcast batches, and admits tensors of three or four axes only. A single head of keys
    and values, which broadcasts, is the head that all query heads share.
    """
    if dropout_p or query.dim() not in (3, 4) or query.dim() != key.dim() or query.dim() != value.dim():
        return False
    if attn_mask is not None and (attn_mask.dim() > query.dim() or attn_mask.dtype not in (torch.bool, query.dtype)):
        return False
    same, is_shared = symbolic_sizes.same_size, enable_gqa or _has_one_head(key, value)
    heads = range(1, 1 + (query.dim() == 4 and not is_shared))
    return all(same(x.shape[axis], query.shape[axis]) for x in (key, value) for axis in (0, *heads))


def _has_one_head(key: torch.Tensor, value: torch.Tensor) -> bool:
    return all(symbolic_sizes.same_size(x.shape[1], 1) for x in (key, value))


@translates(aten.scaled_dot_product_attention.default, since=23, supports=_is_attention)
def aten_scaled_dot_product_attention(
    op: Emitter,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """Emits one Attention node: softmax(scale * query @ keyᵀ + mask) @ value.

    Tensors of three axes are a batch with one head. The mask is expanded over queries and keys because ONNX Runtime
    broadcasts it over batches and heads only.
    """
    heads = 1 if op.rank(query) == 3 else None
    if attn_mask is not None:
        attn_mask = op.expand(attn_mask, (*op.sizes(attn_mask)[:-2], op.sizes(query)[-2], op.sizes(key)[-2]))
        if heads and op.rank(attn_mask) == 3:
            attn_mask = op.unsqueeze(attn_mask, 1)
    causal = 1 if is_causal else None
    return op.Attention(
        query, key, value, attn_mask, is_causal=causal, scale=scale, q_num_heads=heads, kv_num_heads=heads
    )
