"""The vector norm of torch with a typed result."""

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
    """Returns ``torch.linalg.vector_norm``, whose result mypy does not know."""
    norm: Tensor = torch.linalg.vector_norm(x, ord, dim, keepdim, dtype=dtype)
    return norm
