"""Small networks for static quantization, and what a runtime computes of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import torch
from torch import Tensor, nn

import fx_onnx
from fx_onnx.program.onnx_program import ONNXProgram

F = nn.functional


class Residual(nn.Module):
    """Convolutions with an Add and a pooling between them, and a Linear layer after them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.second, self.last = nn.Conv2d(8, 8, 3, padding=1), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 3, height, width) to (batch, 4)."""
        y = self.norm(self.first(x)).relu()
        y = F.max_pool2d(self.second(y) + y, 2).relu()
        return self.last(y.mean((2, 3)))


class Attention(nn.Module):
    """Attention between Linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        """Keeps the shape (batch, tokens, 16)."""
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v))


class Tied(nn.Module):
    """Reads the weight of an embedding as that of a product, and adds a product without a module."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.weight = nn.Embedding(20, 8), nn.Parameter(torch.randn(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 8) to (batch, 20)."""
        return F.linear(x @ self.weight + self.embedding.weight[3], self.embedding.weight)


class Branch(nn.Module):
    """A layer in the body of an If."""

    def __init__(self) -> None:
        super().__init__()
        self.outer, self.inner = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Keeps the shape (batch, 8)."""
        y = self.outer(x)
        return torch.cond(y.sum() > 0, lambda v: self.inner(v).relu(), lambda v: v.relu(), (y,))


def program(module: nn.Module, example: Tensor, **options: Any) -> ONNXProgram:
    torch.manual_seed(0)
    return fx_onnx.export(module.eval(), (example,), **{"dynamic_shapes": ({0: "batch"},), **options})


def images(batch: int = 4) -> Tensor:
    return torch.randn(batch, 3, 16, 16)


def computed_in(model: ONNXProgram, folder: Path) -> Counter[str]:
    """Returns the operators that ONNX Runtime computes."""
    model.save(folder / "model.onnx")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(folder / "optimized.onnx").graph.node)
