"""Modules that several tests use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class FunctionModule(nn.Module):
    """A module whose forward calls a function of tensors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)
