"""Decompositions of activation functions into exponentials."""

import math

import torch
from torch import Tensor

from fx_onnx.decompositions.registry import aten, decomposes

Number = bool | int | float


@decomposes(aten.silu.default)
def silu(self: Tensor) -> Tensor:
    """Returns self * sigmoid(self)."""
    return self * torch.sigmoid(self)


@decomposes(aten.gelu.default)
def gelu(self: Tensor, *, approximate: str = "none") -> Tensor:
    """Returns self * Φ(self), where Φ is the normal distribution function or its approximation by tanh."""
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (self + 0.044715 * (self * self * self))
        return 0.5 * self * (1 + torch.tanh(inner))
    return 0.5 * self * (1 + torch.erf(self / math.sqrt(2)))


@decomposes(aten.elu.default)
def elu(self: Tensor, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Tensor:
    """Returns scale * self above zero, and alpha * scale * (exp(input_scale * self) - 1) below."""
    return torch.where(self > 0, self * scale, torch.expm1(self * input_scale) * (alpha * scale))


@decomposes(aten.celu.default)
def celu(self: Tensor, alpha: Number = 1.0) -> Tensor:
    """Returns max(0, self) + min(0, alpha * (exp(self / alpha) - 1))."""
    return torch.where(self > 0, self, torch.expm1(self / alpha) * alpha)


@decomposes(aten.softplus.default)
def softplus(self: Tensor, beta: Number = 1, threshold: Number = 20) -> Tensor:
    """Returns log(1 + exp(beta * self)) / beta, or self where beta * self is above the threshold."""
    scaled = self * beta
    return torch.where(scaled > threshold, self, torch.nn.functional.softplus(scaled, threshold=1000) / beta)


@decomposes(aten.log_sigmoid_forward.default)
def log_sigmoid_forward(self: Tensor) -> tuple[Tensor, Tensor]:
    """Returns log(sigmoid(self)), and an empty tensor for the second result, which only training uses."""
    return torch.nn.functional.logsigmoid(self), self.new_zeros(0)


@decomposes(aten.rrelu.default)
def rrelu(
    self: Tensor,
    lower: Number = 0.125,
    upper: Number = 1 / 3,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Returns a leaky ReLU; its slope is random in training, and otherwise the mean of the two bounds."""
    if not training:
        return torch.nn.functional.leaky_relu(self, (lower + upper) / 2)
    slope = torch.rand_like(self) * (upper - lower) + lower
    return torch.where(self >= 0, self, self * slope)


@decomposes(aten._safe_softmax.default)
def _safe_softmax(self: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Returns the softmax, or 0 where every element along ``dim`` is -inf."""
    result = torch.softmax(self, dim, dtype=dtype)
    return torch.where(torch.all(self == -torch.inf, dim, keepdim=True), 0.0, result)
