"""Matrix products of groups of rows, each group with its own matrix, as mixture-of-experts layers compute them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.torch_internals.operators import aten
from fx_onnx.translation.emitter import Emitter
from fx_onnx.translations._loop_node import emit_loop


def _is_grouped_by_rows(
    self: torch.Tensor,
    mat2: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> bool:
    """Returns whether the rows of a matrix are grouped by ``offs``, the end of each group."""
    return self.dim() == 2 and mat2.dim() == 3 and offs is not None and bias is None and out_dtype in (None, self.dtype)


@translates(aten._grouped_mm.default, supports=_is_grouped_by_rows)
def aten_grouped_mm(
    op: Emitter,
    self: Value,
    mat2: Value,
    offs: Value | None = None,
    bias: Value | None = None,
    out_dtype: torch.dtype | None = None,
) -> Value:
    """Emits self[offs[e - 1]:offs[e]] @ mat2[e] for each group e; rows after the last group are zero."""
    if offs is None:
        raise NotImplementedError("_grouped_mm without offs has no translation; give the end of each group in offs.")
    return grouped_matmul(op, self, mat2, offs)


@translates("transformers::grouped_mm_fallback")
def transformers_grouped_mm_fallback(op: Emitter, input: Value, weight: Value, offs: Value) -> Value:
    """Emits the same for the operator that transformers calls where torch's _grouped_mm is not available."""
    return grouped_matmul(op, input, weight, offs)


def grouped_matmul(op: Emitter, rows: Value, matrices: Value, offs: Value) -> Value:
    """Emits the product of each group of rows with the matrix of the group; sizes of groups are known at run time only.

    Args:
        op: the emitter.
        rows: the groups one after another, (rows, inner).
        matrices: the matrix of each group, (groups, inner, columns).
        offs: the end of each group, (groups,).
    """
    ends = op.cast(offs, DataType.INT64)
    weight = _weight(matrices)
    if weight is not None:
        return _products_with_weights(op, rows, matrices, weight, ends)
    return _products_in_loop(op, rows, matrices, ends)


def _weight(matrices: Value) -> Value | None:
    """Returns the weight that the matrices are, as they are or transposed; None if they are computed or an input."""
    producer = matrices.producer()
    if producer is not None and producer.op_type == "Transpose":
        if tuple(producer.attributes["perm"].as_ints()) != (0, 2, 1):
            return None
        matrices = producer.inputs[0] or matrices
    return matrices if matrices.is_initializer() else None


def _products_with_weights(op: Emitter, rows: Value, matrices: Value, weight: Value, ends: Value) -> Value:
    """Emits one product for each group. Each reads a slice of the weight, which ``fold_weight_selections`` stores.

    No run copies a matrix then, and a runtime may pack it as it packs the weight of any MatMul.
    """
    groups, inner, columns = map(int, op.sizes(matrices))
    everything = op.Concat(ends, op.Shape(rows, start=0, end=1), axis=0)
    sizes = op.Sub(everything, op.Concat([0], ends, axis=0))
    *parts, _ = op.emit("Split", rows, sizes, axis=0, outputs=groups + 1)
    products = []
    for group, part in enumerate(parts):
        matrix = op.Gather(weight, group, axis=0)
        part.shape, matrix.shape = ir.Shape([None, inner]), ir.Shape(op.sizes(weight)[1:])
        products.append(op.MatMul(part, matrix) if weight is matrices else op.Gemm(part, matrix, transB=1))
    zero = ir.Tensor(np.zeros(1, (rows.dtype or DataType.FLOAT).numpy()), dtype=rows.dtype)
    zeros = op.ConstantOfShape(op.Concat(op.Slice(sizes, [groups], [groups + 1], [0]), [columns], axis=0), value=zero)
    result: Value = op.Concat(*products, zeros, axis=0)
    return result


def _products_in_loop(op: Emitter, rows: Value, matrices: Value, ends: Value) -> Value:
    """Emits a Loop over the groups that have rows. It appends the product of each group."""
    columns = op.sizes(matrices)[2]
    starts = op.Concat([0], op.Slice(ends, [0], [-1], [0]), axis=0)
    filled = op.Reshape(op.NonZero(op.Less(starts, ends)), [-1])

    def step(inner: Emitter, iteration: Value, done: Value) -> Sequence[Value]:
        group = inner.Gather(filled, inner.Unsqueeze(iteration, [0]))
        part = inner.Slice(rows, inner.Gather(starts, group), inner.Gather(ends, group), [0])
        matrix = inner.Gather(matrices, inner.Squeeze(group, [0]), axis=0)
        return [inner.Concat(done, inner.MatMul(part, matrix), axis=0)]

    empty = op.cast(op.Expand(0.0, op.shape((0, columns))), rows.dtype or DataType.FLOAT)
    (products,) = emit_loop(op, step, empty, rounds=op.Squeeze(op.Shape(filled), [0]))
    left = op.Sub(op.Shape(rows, start=0, end=1), op.Shape(products, start=0, end=1))
    result: Value = op.Pad(products, op.Concat([0, 0], left, [0], axis=0))
    return result
