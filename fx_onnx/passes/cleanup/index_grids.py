"""Elimination of reads at all positions of a tensor, which are written with index tensors."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, constant_integers, constant_number, dims, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["EliminateIndexGrids"]


class EliminateIndexGrids(Rewrite):
    """GatherND(x, all positions along some axes) → Unsqueeze(x). An example is mask[batch_idx, None, None, kv_idx].

    Legal where the k-th column of the indices is Range(0, n, 1) along one axis of the result, n is the size of the k-th
    axis of x, the axes of the result have the order of those of x, and all other axes of the indices have size 1.
    """

    name = "eliminate_index_grids"
    op_types = ("GatherND",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Replaces one GatherND."""
        x, columns = node.inputs[0], _columns(node.inputs[1])
        sizes, result = dims(x), dims(node.outputs[0])
        if x is None or sizes is None or result is None or not columns or attribute(node, "batch_dims", 0):
            return False
        grid = result[: len(result) + len(columns) - len(sizes)]  # the shape of each column
        axes = [_range_axis(column, size, grid) for column, size in zip(columns, sizes, strict=False)]
        found = [axis for axis in axes if axis is not None]
        if len(found) < len(axes):
            return self.declines(node, "a column of the indices is not the range of all positions")
        if found != sorted(set(found)):
            return self.declines(node, "the axes are permuted or repeated")
        others = [axis for axis in range(len(grid)) if axis not in found]
        if any(grid[axis] != 1 for axis in others):
            return self.declines(node, "the result repeats the elements")
        if not others and not node.outputs[0].is_graph_output():
            return editor.replace_with_value(node, x)
        editor.replace(node, "Unsqueeze", [x, editor.constant(others, node)], {})
        return True


def _columns(indices: ir.Value | None) -> list[ir.Value]:
    """Returns the columns of the indices (..., k), each without the last axis; none if they are not built so."""
    concat = producer_of(indices, "Concat")
    if concat is not None and attribute(concat, "axis") != -1:
        return []
    found = []
    for part in [indices] if concat is None else concat.inputs:
        unsqueeze = producer_of(part, "Unsqueeze")
        column = None if unsqueeze is None or constant_integers(unsqueeze.inputs[1]) != [-1] else unsqueeze.inputs[0]
        if column is None:
            return []
        found.append(column)
    return found


def _range_axis(column: ir.Value, size: int | str, grid: tuple[int | str, ...]) -> int | None:
    """Returns the axis along which a column is Range(0, size, 1), broadcast along all others; None if it is not."""
    expand = producer_of(column, "Expand")
    value = column if expand is None else expand.inputs[0]
    reshape = producer_of(value, "Reshape", "Unsqueeze")
    source = producer_of(value if reshape is None else reshape.inputs[0], "Range")
    shape = dims(value)
    if source is None or shape is None or dims(source.outputs[0]) != (size,):
        return None
    long = [axis - len(shape) + len(grid) for axis, dim in enumerate(shape) if dim != 1]
    begins_at_0 = constant_number(source.inputs[0]) == 0 and constant_number(source.inputs[2]) == 1
    return long[0] if begins_at_0 and len(long) == 1 and grid[long[0]] == size else None
