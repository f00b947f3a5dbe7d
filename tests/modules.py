"""Modules that several tests use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class FunctionModule(nn.Module):
    """A module whose forward calls a function of tensors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


class FourBitLinear(nn.Module):
    """A linear layer whose weight has 4-bit integers, with a scale for each 4 columns of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-8, 8, (6, 16), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(6, 4))
        self.register_buffer("zeros", torch.randint(-8, 8, (6, 4), dtype=torch.int8))

    def forward(self, x: Tensor) -> Tensor:
        weight = torch.ops.quantized_decomposed.dequantize_per_channel_group(
            self.weight, self.scales, self.zeros, -8, 7, torch.int8, 4, torch.float32
        )
        return nn.functional.linear(x, weight)
