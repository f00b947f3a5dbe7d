"""ScatterND and ScatterElements that combine elements, as a reduction, for a runtime that only overwrites.

MNN (measured with 3.6.1) ignores the attribute ``reduction``: of two updates of one element, the last one remains.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.core.dtypes import is_float
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, constant_integers, dims, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeScatterReductions"]

_REDUCTIONS = {"add": "ReduceSum", "mul": "ReduceProd", "max": "ReduceMax", "min": "ReduceMin"}


class LegalizeScatterReductions(Rewrite):
    """ScatterND(x, i, u, add) → ReduceSum(Concat(x, Where(i = row, u, 0))) for each row of x; also mul, max and min.

    Legal where the indices select along the first axis only: it combines the same numbers, in another order. It needs
    memory for rows × updates elements. The pass belongs to the target mnn.
    """

    name = "legalize_scatter_reductions"
    op_types = ("ScatterND", "ScatterElements")
    since = 18  # earlier reductions take the axes as an attribute

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one scatter with a reduction."""
        reduction = attribute(node, "reduction", "none")
        x, indices, updates = node.inputs
        if reduction == "none" or x is None or indices is None or updates is None or x.dtype is None:
            return False
        sizes, places = dims(x), _places(node, indices)
        if sizes is None or places is None or (node.op_type == "ScatterElements" and len(sizes) != 1):
            return self.declines(node, "the indices do not select along the first axis only")
        f = NodeBuilder(node, editor, x.dtype)
        if node.op_type == "ScatterND" and places is indices:
            places = f.Squeeze(indices, f.constant([1]))
        is_read = self._is_place(f, x, places)
        if len(sizes) > 1:
            is_read = f.Unsqueeze(is_read, f.constant(list(range(2, len(sizes) + 1))))
        parts = f.Where(is_read, updates, f.constant(_neutral(f.dtype, reduction)))
        # With x among the numbers, a row without updates is not the reduction of nothing.
        numbers = f.Concat(f.Unsqueeze(x, f.constant([1])), parts, axis=1)
        editor.replace(node, _REDUCTIONS[reduction], [numbers, f.constant([1])], {"keepdims": 0})
        return True

    @staticmethod
    def _is_place(f: NodeBuilder, x: Value, places: Value) -> Value:
        """Returns whether an update, a column, belongs to a row of x. A negative index counts from the end."""
        rows = f.Shape(x, start=0, end=1)
        places = f.Where(f.Greater(f.constant(np.zeros(1, np.int64)), places), f.Add(places, rows), places)
        every = f.Range(f.constant(np.array(0)), f.Squeeze(rows, f.constant([0])), f.constant(np.array(1)))
        return f.Equal(f.Unsqueeze(every, f.constant([1])), places)


def _places(node: ir.Node, indices: Value) -> Value | None:
    """Returns the indices if they are a vector or a column, or the vector that a column was made of."""
    if node.op_type == "ScatterElements":
        return indices
    sizes, column = dims(indices), producer_of(indices, "Unsqueeze")
    if sizes is not None and len(sizes) == 2 and sizes[1] == 1:
        return indices
    vector = None if column is None else column.inputs[0]
    axes = None if column is None else constant_integers(column.inputs[1])
    is_column = axes in ([1], [-1]) and len(dims(vector) or ()) == 1
    return vector if is_column else None


def _neutral(dtype: DataType, reduction: str) -> Any:
    """Returns the number that does not change a result."""
    kind = dtype.numpy()
    if reduction in ("add", "mul"):
        return np.array(int(reduction == "mul"), kind)
    if is_float(dtype):
        return np.array(-np.inf if reduction == "max" else np.inf, kind)
    limits = np.iinfo(kind)
    return np.array(limits.min if reduction == "max" else limits.max, kind)
