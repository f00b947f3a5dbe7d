"""Exports for the tests of targets."""

from typing import Any

import torch
import torch.nn.functional as F

import fx_onnx


class Call(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


class StaticCache(torch.nn.Module):
    """New tokens read a cache of 8 places, of which they take those from ``start`` on."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        mask = torch.arange(8) <= (torch.arange(q.shape[2]) + start)[:, None]
        return F.scaled_dot_product_attention(q, k, k, attn_mask=mask)


def exported(function: Any, x: torch.Tensor, **options: Any) -> fx_onnx.ONNXProgram:
    """Exports a function of one tensor."""
    return fx_onnx.export(Call(function).eval(), (x,), verbose=False, **options)


def operators(program: fx_onnx.ONNXProgram) -> list[str]:
    """Returns the operators of the graph, in order."""
    return [node.op_type for node in program.model.graph]


def padded_maximum(x: torch.Tensor) -> torch.Tensor:
    """Emits Pad and ReduceMax."""
    return torch.nn.functional.pad(x, (1, 1)).amax(-1)
