"""What several families do along one axis of a tensor."""

import torch
from torch import Tensor


def product_along(self: Tensor, axis: int, weights: Tensor) -> Tensor:
    """The sum along ``axis`` (negative, counted from the end) with weights (in, out)."""
    if axis == -1:
        return torch.matmul(self, weights)
    if axis == -2:
        return torch.matmul(weights.transpose(0, 1), self)
    return torch.matmul(self.movedim(axis, -1), weights).movedim(-1, axis)


def at_least(size: int | float, least: int | float) -> int | float:
    """The larger of a size, which may be symbolic, and a number."""
    larger: int | float = torch.sym_max(size, least)
    return larger
