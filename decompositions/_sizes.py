"""Questions about sizes that never specialize a symbolic size."""

import torch
from torch import Tensor


def is_known(size: int | float, number: int) -> bool:
    """Returns whether a size or another number is the integer ``number``; False for a symbolic one."""
    return isinstance(size, (int, float)) and size == number


def is_empty(*tensors: Tensor) -> bool:
    """Returns whether a size of one of the tensors is known to be 0."""
    return any(is_known(size, 0) for tensor in tensors for size in tensor.shape)


def at_least(size: int | float, least: int | float) -> int | float:
    """Returns the larger of a size, which may be symbolic, and a number."""
    larger: int | float = torch.sym_max(size, least)
    return larger
