"""Runs the module inside a DataParallel or a DistributedDataParallel once, instead of once on each device."""

from __future__ import annotations

import functools
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

__all__ = ["OneReplica", "is_parallel"]


def is_parallel(model: Any) -> bool:
    """Returns whether a model runs a module on several devices."""
    return isinstance(model, (nn.DataParallel, DistributedDataParallel))


class OneReplica(nn.Module):
    """Computes the same as a parallel module, with the same names of weights, which begin with ``module.``.

    Its ``forward`` has the signature of the inner module's.
    """

    def __init__(self, parallel: nn.Module) -> None:
        super().__init__()
        module: Any = parallel.module
        self.module = module
        self.training = parallel.training

        @functools.wraps(module.forward)
        def forward(*args: Any, **kwargs: Any) -> Any:
            return module(*args, **kwargs)

        self.forward = forward
