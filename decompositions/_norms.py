"""What norms and variances share."""

from collections.abc import Sequence

import torch
from torch import Tensor


def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Returns ``torch.linalg.vector_norm``, whose result type mypy does not know."""
    norm: Tensor = torch.linalg.vector_norm(x, ord, dim, keepdim, dtype=dtype)
    return norm


def at_least_float32(x: Tensor) -> Tensor:
    """Returns a tensor of half precision in float32, and any other as it is."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
