"""Modules that tests make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class Of(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)
