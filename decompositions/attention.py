"""Decompositions of attention into matmul and softmax."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from fx_onnx.decompositions._sizes import is_known
from fx_onnx.decompositions.registry import aten, decomposes


@decomposes(aten.scaled_dot_product_attention.default)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Returns softmax(scale * query @ keyᵀ + mask) @ value; a query whose keys are all masked gives zeros."""
    product = _grouped_matmul if enable_gqa else torch.matmul
    scores, kept = _scores(query, key, scale, product), None
    if is_causal:
        attn_mask = _causal_bias(query, key)
    elif attn_mask is not None:
        attn_mask, kept = _bias_and_row_factor(attn_mask, scores.dtype)
    weights = torch.softmax(scores if attn_mask is None else scores + attn_mask, -1)
    if dropout_p > 0:
        weights = F.dropout(weights, dropout_p, training=True)
    out = product(weights, value)
    return out if kept is None else out * kept


def _scores(
    query: Tensor, key: Tensor, scale: float | None, product: Callable[[Tensor, Tensor], Tensor] = torch.matmul
) -> Tensor:
    """Returns scale * query @ keyᵀ; the scale multiplies the query, because that is smaller than the product."""
    if scale is None:
        size = query.size(-1)
        scale = 1 / (math.sqrt(size) if isinstance(size, int) else torch.sym_sqrt(size))
    return product(query if isinstance(scale, (int, float)) and scale == 1 else query * scale, key.transpose(-2, -1))


def _grouped_matmul(rows: Tensor, other: Tensor) -> Tensor:
    """Returns rows @ other, where a head of ``other`` serves several successive heads of ``rows``.

    These heads become more rows of one product, so that the keys and values are read once and never repeated.
    """
    *batch, heads, length, inner = rows.shape
    shared = other.size(-3)
    if is_known(shared, heads):
        return torch.matmul(rows, other)
    folded = rows.reshape(*batch, shared, heads // shared * length, inner)
    out = torch.matmul(folded, other)
    return out.reshape(*out.shape[:-3], heads, length, other.size(-1))


def _causal_bias(query: Tensor, key: Tensor) -> Tensor:
    """Returns the bias of causal attention: the lowest number for keys after the query, 0 elsewhere."""
    future = torch.full((query.size(-2), key.size(-2)), _hiding(query.dtype), dtype=query.dtype, device=query.device)
    return future.triu(1)


def _hiding(dtype: torch.dtype) -> float:
    """Returns the number that hides a key if it is added to its score.

    Scores vanish beside the lowest finite number, except in float16. Quantizers need finite numbers.
    """
    return -math.inf if dtype == torch.float16 else torch.finfo(dtype).min


def _bias_and_row_factor(mask: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Returns the bias of a mask, and a factor for the output: 0 for a query whose keys are all masked, 1 otherwise.

    The softmax of such a query would be NaN, but torch returns zeros, so its row of the bias is finite. All layers that
    share a mask share both results. The factor multiplies the output, which is smaller than the weights for long
    sequences.
    """
    if is_known(mask.size(-1), 0):
        return torch.where(mask, 0.0, -math.inf).to(dtype) if mask.dtype == torch.bool else mask.to(dtype), None
    zero, two = (torch.full((), number, dtype=dtype, device=mask.device) for number in (0.0, 2.0))
    lowest = torch.finfo(dtype).min
    # The sum is 0 if all keys are masked, else at least 2, and twice the lowest finite number is -inf. Several runtimes
    # have no kernel for ReduceMax, Equal or IsNaN.
    if mask.dtype == torch.bool:
        doubled = torch.where(mask, two, zero).sum(-1, keepdim=True)
        kept = doubled.clamp(max=1.0)
        # Where a key is hidden, the number is that of _hiding.
        bias = torch.where(mask, zero, (doubled if dtype == torch.float16 else kept) * lowest)
    else:
        bias = mask.to(dtype)
        is_masked = bias < lowest
        doubled = torch.where(is_masked, zero, two).sum(-1, keepdim=True)
        kept = doubled.clamp(max=1.0)
        bias = torch.where(is_masked, doubled * lowest, bias)
    return bias, kept


@decomposes(aten._scaled_dot_product_flash_attention_for_cpu.default)
def _scaled_dot_product_flash_attention_for_cpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns the attention, and the logarithm of the denominators of its softmax, in float32."""
    out = F.scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)
    scores = _scores(query.float(), key.float(), scale)
    if is_causal:
        scores = scores + _causal_bias(query, key)
    if attn_mask is not None:
        scores = torch.where(attn_mask, scores, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return out, torch.logsumexp(scores, -1)
