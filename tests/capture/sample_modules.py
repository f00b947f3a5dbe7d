"""Modules, tensors and containers that several tests of the capture use."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import torch

from fx_onnx.requests.request import Request

Pair = collections.namedtuple("Pair", ["left", "right"])


@dataclasses.dataclass
class Cache:
    key: torch.Tensor
    value: torch.Tensor


torch.export.register_dataclass(Cache, serialized_type_name="tests.capture.sample_modules.Cache")


class Two(torch.nn.Module):
    def forward(self, x: Any, y: Any = None, *, flag: bool = True, **extra: Any) -> Any:
        return x if y is None else x + y


class One(torch.nn.Module):
    def forward(self, tree: Any) -> Any:
        return tree


class Function(torch.nn.Module):
    """Calls a function of one or two tensors."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None, **extra: torch.Tensor) -> Any:
        return self.function(x) if y is None else self.function(x, y, **extra)


def t(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


X, Y = t(3, 4), t(3, 4)


def axes(request: Request) -> list[dict[int, str | None]]:
    """Returns the axes requested as dynamic, for each tensor."""
    return [dict(tensor.axes) for tensor in request.inputs]
