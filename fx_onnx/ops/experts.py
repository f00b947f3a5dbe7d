"""Matrix products of groups of rows, each group with its own matrix, as mixture-of-experts layers compute them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from onnx_ir import DataType, Value

from fx_onnx.core.operators import aten
from fx_onnx.core.translation_table import translates
from fx_onnx.ops._loop_node import emit_loop
from fx_onnx.translation.emitter import Emitter


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
    """Emits a Loop: self[offs[e - 1]:offs[e]] @ mat2[e] for each group e; rows after the last group are zero."""
    if offs is None:
        raise NotImplementedError("_grouped_mm without offs has no translation; give the end of each group in offs.")
    return grouped_matmul(op, self, mat2, offs)


@translates("transformers::grouped_mm_fallback")
def transformers_grouped_mm_fallback(op: Emitter, input: Value, weight: Value, offs: Value) -> Value:
    """Emits the same Loop for the operator that transformers calls where torch's _grouped_mm is not available."""
    return grouped_matmul(op, input, weight, offs)


def grouped_matmul(op: Emitter, rows: Value, matrices: Value, offs: Value) -> Value:
    """Emits a Loop over the groups that appends the product of each group; group sizes are known at run time only."""
    groups, _, columns = op.sizes(matrices)
    ends = op.cast(offs, DataType.INT64)
    starts = op.Concat([0], op.Slice(ends, [0], [-1], [0]), axis=0)

    def step(inner: Emitter, iteration: Value, done: Value) -> Sequence[Value]:
        group = inner.Unsqueeze(iteration, [0])
        part = inner.Slice(rows, inner.Gather(starts, group), inner.Gather(ends, group), [0])
        return [inner.Concat(done, inner.MatMul(part, inner.Gather(matrices, iteration, axis=0)), axis=0)]

    empty = op.cast(op.Expand(0.0, op.shape((0, columns))), rows.dtype or DataType.FLOAT)
    (products,) = emit_loop(op, step, empty, rounds=op.cast(groups, DataType.INT64))
    left = op.Sub(op.Shape(rows, start=0, end=1), op.Shape(products, start=0, end=1))
    result: Value = op.Pad(products, op.Concat([0, 0], left, [0], axis=0))
    return result
