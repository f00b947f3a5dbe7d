"""ATen arithmetic → ONNX."""

import operator

import torch
from onnx_ir import DataType, Value

from fx_onnx.emitter import Emitter, Operand, Scalar
from fx_onnx.table import translates

aten = torch.ops.aten


@translates(aten.add.Tensor, aten.add.Scalar, operator.add)
def aten_add(op: Emitter, self: Operand, other: Operand, alpha: Scalar = 1) -> Value:
    """self + alpha * other; a logical or for booleans, which ONNX Add rejects."""
    self, other = op.promote(self, other, dtype=op.out[0].dtype)
    if self.dtype == DataType.BOOL:
        return op.Or(self, other)
    return op.Add(self, other if alpha == 1 else op.Mul(other, alpha))


@translates(aten.mul.Tensor, aten.mul.Scalar, operator.mul)
def aten_mul(op: Emitter, self: Operand, other: Operand) -> Value:
    """self * other; a logical and for booleans."""
    self, other = op.promote(self, other, dtype=op.out[0].dtype)
    return op.And(self, other) if self.dtype == DataType.BOOL else op.Mul(self, other)


@translates(aten.relu.default)
def aten_relu(op: Emitter, self: Value) -> Value:
    """max(self, 0)."""
    return op.Relu(self)
