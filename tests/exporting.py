"""Exports for the tests of targets."""

from typing import Any

import torch

import fx_onnx


class Call(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def exported(function: Any, x: torch.Tensor, **options: Any) -> fx_onnx.ONNXProgram:
    """Exports a function of one tensor."""
    return fx_onnx.export(Call(function).eval(), (x,), verbose=False, **options)


def operators(program: fx_onnx.ONNXProgram) -> list[str]:
    """Returns the operators of the graph, in order."""
    return [node.op_type for node in program.model.graph]


def padded_maximum(x: torch.Tensor) -> torch.Tensor:
    """Emits Pad and ReduceMax."""
    return torch.nn.functional.pad(x, (1, 1)).amax(-1)
