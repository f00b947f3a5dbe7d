"""Linear maps along one axis of a tensor."""

import torch
from torch import Tensor


def matmul_along(self: Tensor, axis: int, weights: Tensor) -> Tensor:
    """Returns weighted sums along ``axis``: element j of the result is the sum over i of element i * ``weights[i, j]``.

    Args:
        axis: a negative number, counted from the last axis.
        weights: (size of the axis, its size in the result).
    """
    if axis == -1:
        return torch.matmul(self, weights)
    if axis == -2:
        return torch.matmul(weights.transpose(0, 1), self)
    return torch.matmul(self.movedim(axis, -1), weights).movedim(-1, axis)
