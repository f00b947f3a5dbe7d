"""Reads of a number from a tensor; later sizes and numbers may depend on the symbol that ``item()`` returns."""

from __future__ import annotations

import torch
from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter


@translates(aten.item.default, aten._local_scalar_dense.default)
def aten_item(op: Emitter, self: Value) -> Value:
    """Emits a Reshape to 0-d in the dtype in which symbolic numbers are computed."""
    number = op.out[0]
    if isinstance(number, (bool, torch.SymBool)):
        dtype = DataType.BOOL
    else:
        dtype = DataType.DOUBLE if isinstance(number, (float, torch.SymFloat)) else DataType.INT64
    return op.reshape(op.with_sizes(op.cast(self, dtype), op.sizes(self)), [])
