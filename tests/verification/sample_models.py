"""Small models and wrong translations for the tests of verification."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import fx_onnx

aten = torch.ops.aten


def wrong_gelu(op: Any, self: Any, *, approximate: str = "none") -> Any:
    """Returns x * sigmoid(1.702 x), which is only near to GELU."""
    return op.Mul(self, op.Sigmoid(op.Mul(self, op.constant(1.702, dtype=self.dtype))))


WRONG = {aten.gelu.default: wrong_gelu}


class Encoder(nn.Module):
    """Calls its encoder as often as ``times``."""

    def __init__(self, times: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.enc = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
        self.head, self.times = nn.Linear(8, 2), times

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 8) to (batch, 2)."""
        for _ in range(self.times):
            x = self.enc(x)
        return self.head(x.relu())


X = torch.linspace(-2, 2, 24).reshape(3, 8)


def export(module: nn.Module, *args: Tensor, wrong: bool = False, **options: Any) -> fx_onnx.ONNXProgram:
    """Exports a module in eval mode, with the wrong GELU if asked; axis 0 of the first argument is dynamic."""
    if wrong:
        options["custom_translation_table"] = WRONG
    options.setdefault("dynamic_shapes", ({0: "batch"}, *[None] * (len(args) - 1)))
    return fx_onnx.export(module.eval(), args, **options)
