"""Norms and logarithms of sums as ReduceSum, for a runtime that reduces them over all axes.

MNN (measured with 3.6.1) does not read the axes of ReduceL1, ReduceL2, ReduceLogSum, ReduceLogSumExp and
ReduceSumSquare at opset 18, where they are an input. It reads those of ReduceSum, ReduceMean, ReduceMax, ReduceMin and
ReduceProd.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir import Value

from fx_onnx.core.dtypes import is_float
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, dims
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeReductions"]

_DEFAULTS = {"keepdims": 1, "noop_with_empty_axes": 0}
_LAST = {"ReduceL2": "Sqrt", "ReduceLogSum": "Log"}


class LegalizeReductions(Rewrite):
    """ReduceL2(x) → Sqrt(ReduceSum(x * x)); also ReduceL1, ReduceSumSquare, ReduceLogSum and ReduceLogSumExp.

    Legal because these are ONNX's definitions. The largest element is subtracted before Exp, so that a finite result
    does not overflow. The pass belongs to the target mnn.
    """

    name = "legalize_reductions"
    op_types = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
    since = 18

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one reduction with axes."""
        x, *axes = node.inputs
        if x is None or x.dtype is None or not axes or axes[0] is None:
            return False
        if not is_float(x.dtype):
            return self.declines(node, "the dtype is %s", x.dtype)
        f, sizes = NodeBuilder(node, editor, x.dtype), dims(x)
        if node.op_type == "ReduceLogSumExp":
            self._log_sum_exp(node, editor, f, x, axes[0])
            return True
        if node.op_type == "ReduceLogSum":
            summands = x
        else:
            summands = f.Abs(x, sizes=sizes) if node.op_type == "ReduceL1" else f.Mul(x, x, sizes=sizes)
        options = {name: attribute(node, name, default) for name, default in _DEFAULTS.items()}
        if node.op_type in _LAST:
            total = f.ReduceSum(summands, axes[0], sizes=dims(node.outputs[0]), **options)
            editor.replace(node, _LAST[node.op_type], [total], {})
        else:
            editor.replace(node, "ReduceSum", [summands, axes[0]], options)
        return True

    @staticmethod
    def _log_sum_exp(node: ir.Node, editor: Editor, f: NodeBuilder, x: Value, axes: Value) -> None:
        """Computes m + log(Σ exp(x - m)) for the largest element m, made finite because ∞ - ∞ is not a number."""
        limit = float(np.finfo((x.dtype or ir.DataType.FLOAT).numpy()).max)
        noop = {"noop_with_empty_axes": attribute(node, "noop_with_empty_axes", 0)}
        largest = f.Clip(f.ReduceMax(x, axes, keepdims=1, **noop), -limit, limit)
        total = f.ReduceSum(f.Exp(f.Sub(x, largest, sizes=dims(x)), sizes=dims(x)), axes, keepdims=1, **noop)
        result = [largest, f.Log(total)]
        if attribute(node, "keepdims", 1):
            editor.replace(node, "Add", result, {})
        else:
            editor.replace(node, "ReduceMax", [f.Add(*result), axes], {"keepdims": 0, **noop})
