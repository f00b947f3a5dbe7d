"""ATen random operators → ONNX."""

import torch
from onnx_ir import Value

from fx_onnx.emitter import Emitter
from fx_onnx.table import translates

aten = torch.ops.aten


@translates(aten.dropout.default)
def aten_dropout(op: Emitter, input: Value, p: float, train: bool) -> Value:
    """In training zeros with probability p, the others scaled by 1 / (1 - p); else the input itself."""
    if not train or p == 0:
        return input
    if p == 1:  # ONNX wants a ratio below 1
        return op.Mul(input, 0.0)
    data = op.Dropout(input, op.constant(p), True)
    return data[0] if isinstance(data, tuple) else data
