"""Decompositions of embeddings that are summed, averaged or maximized over bags of indices."""

import torch
from torch import Tensor

from fx_onnx.decompositions._norms import vector_norm
from fx_onnx.decompositions.registry import aten, decomposes

_SUM, _MEAN, _MAX = 0, 1, 2


@decomposes(aten.embedding_renorm.default)
def embedding_renorm(self: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Returns self, with the rows in ``indices`` scaled down to a norm of at most ``max_norm``."""
    norms = vector_norm(self, norm_type, 1, keepdim=True)
    used = torch.zeros_like(norms, dtype=torch.bool).index_fill(0, indices.reshape(-1), True)
    return torch.where(used & (norms > max_norm), self * (max_norm / (norms + 1e-7)), self)


@decomposes(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns the reduced bags, the bag of each index, the size of each bag, and the index of each maximum.

    Each index belongs to the last bag that begins at or before it. An empty bag gives zeros. Without maxima the last
    result is a zero for each bag.
    """
    bags = offsets.shape[0] - int(include_last_offset)
    starts = offsets[:-1] if include_last_offset else offsets
    places = torch.arange(indices.shape[0], dtype=offsets.dtype, device=indices.device)
    bag = torch.searchsorted(starts, places, right=True) - 1
    rows = torch.embedding(weight, indices)
    counted = torch.ones_like(indices) if padding_idx < 0 else (indices != padding_idx).to(indices.dtype)
    sizes = torch.zeros_like(starts).index_add(0, bag, counted.to(starts.dtype))
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    is_padding = (counted == 0).unsqueeze(-1)
    zeros = weight.new_zeros((bags, weight.shape[1]))
    largest_indices = torch.zeros_like(sizes)
    if mode == _MAX:
        lowest, rows = zeros - float("inf"), rows.masked_fill(is_padding, float("-inf"))
        largest = torch.index_reduce(lowest, 0, bag, rows, "amax")
        result = torch.where((sizes == 0).unsqueeze(-1), zeros, largest)
        none = places.new_zeros(zeros.shape) + indices.shape[0]
        candidates = torch.where((rows == largest[bag]) & ~is_padding, places.unsqueeze(-1), indices.shape[0])
        first = torch.index_reduce(none, 0, bag, candidates, "amin")
        largest_indices = torch.cat([indices, indices.new_zeros(1)])[first]
    else:
        result = zeros.index_add(0, bag, rows.masked_fill(is_padding, 0))
        if mode == _MEAN:
            result = result / sizes.clamp(min=1).unsqueeze(-1).to(result.dtype)
    return result, bag, sizes, largest_indices
