"""Gathering of the rows of a quantized embedding before they are dequantized."""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, dims, initializer_tensor, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["GatherQuantizedRows"]


class GatherQuantizedRows(Rewrite):
    """Gather(DequantizeLinear(w, scale, zero), i) → (Gather(w, i) - Gather(zero, i)) * Gather(scale, i).

    Legal because DequantizeLinear computes each element in this way from its own weight, scale and zero. The weight is
    a matrix of 8 bits, with a float32 scale for each row or for each block of a row. Otherwise each run would
    dequantize all rows of an embedding. A weight of 4 bits is left as it is, because Gather does not take it.
    """

    name = "gather_quantized_rows"
    op_types = ("Gather",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one Gather."""
        table, indices = _match_table(node.inputs[0]), node.inputs[1]
        if table is None or indices is None or dims(indices) is None or editor.function is not None:
            return False
        if attribute(node, "axis", 0) not in (0, -2):
            return self.declines(node, "it gathers columns")
        f, batch = NodeBuilder(node, editor, DataType.FLOAT), dims(indices) or ()

        def rows(value: ir.Value, size: int) -> ir.Value:
            """Returns the gathered rows, each of (blocks, size), or (size) if there is one block."""
            row = [table.blocks, size] if table.blocks > 1 else [size]
            if dims(value) != (table.rows, *row):
                value = f.Reshape(value, [table.rows, *row], sizes=[table.rows, *row])
            return f.Gather(value, indices, axis=0, sizes=[*batch, *row])

        found = f.Cast(rows(table.weight, table.block), to=DataType.FLOAT)
        if table.zero is not None:
            found = f.Sub(found, f.Cast(rows(table.zero, 1), to=DataType.FLOAT))
        factors = [found, rows(table.scale, 1)]
        if table.blocks == 1:
            editor.replace(node, "Mul", factors, {})
        else:  # 0 keeps the size of a dim
            shape = f.constant([*(0 for _ in batch), table.blocks * table.block])
            editor.replace(node, "Reshape", [f.Mul(*factors), shape], {})
        return True


class _Table(NamedTuple):
    """A weight (rows, blocks * block), with a scale and perhaps a zero for each block, in any shape of this order."""

    weight: ir.Value
    scale: ir.Value
    zero: ir.Value | None
    rows: int
    blocks: int
    block: int


def _match_table(value: ir.Value | None) -> _Table | None:
    """Returns the table of a dequantized matrix; below opset 21, its blocks may be rows of a taller matrix."""
    reshape = producer_of(value, "Reshape")
    node = producer_of(value if reshape is None else reshape.inputs[0], "DequantizeLinear")
    if node is None or any(each is None or initializer_tensor(each) is None for each in node.inputs):
        return None
    weight, scale, *zeros = node.inputs
    shape, sizes, scales = dims(value), dims(weight), dims(scale)
    if weight is None or scale is None or weight.dtype not in (DataType.INT8, DataType.UINT8):
        return None
    if scale.dtype != DataType.FLOAT or not shape or not sizes or not scales or len(shape) != 2 or len(sizes) != 2:
        return None
    axis = attribute(node, "axis", 1) % 2
    rows, columns = int(shape[0]), int(shape[1])
    block = columns // (int(scales[1]) or 1) if len(scales) == 2 else int(sizes[1])
    is_by_block = len(scales) == 2 and axis == 1 and reshape is None and block == attribute(node, "block_size", 0)
    is_by_row = len(scales) == 1 and axis == 0 and block > 0 and columns % block == 0
    if not (is_by_block or is_by_row) or columns % block:
        return None
    return _Table(weight, scale, zeros[0] if zeros else None, rows, columns // block, block)
