"""Embeddings and one-hot encodings."""

from __future__ import annotations

from onnx_ir import Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.sizes.symbolic_sizes import Size
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter


@translates(aten.embedding.default)
def aten_embedding(
    op: Emitter,
    weight: Value,
    indices: Value,
    padding_idx: Size = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    """Emits Gather of the rows of weight."""
    return op.Gather(weight, indices, axis=0)


@translates(aten.one_hot.default)
def aten_one_hot(op: Emitter, self: Value, num_classes: int = -1) -> Value:
    """Emits OneHot along a new last axis; without num_classes the depth is the largest index plus 1."""
    depth = [num_classes] if num_classes >= 0 else op.reshape(op.Add(op.ReduceMax(self, keepdims=0), 1), [1])
    indices = self if op.rank(self) else op.unsqueeze(self, 0)
    encoded = op.OneHot(indices, depth, op.constant([0, 1]), axis=-1)
    return encoded if op.rank(self) else op.squeeze(encoded, 0)
