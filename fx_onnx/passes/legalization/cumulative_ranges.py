"""Ranges as cumulative sums, for runtimes that lose the length of a range.

tract (measured with 0.23.9) gives the result of a Range whose limit is a symbolic size an unknown length. It then
computes a wrong shape, or fails, where the range meets a tensor that has the size: the causal mask of every decoder.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.legalization.range_indices import is_nonnegative
from fx_onnx.passes.matchers import constant_number, dims
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeRanges"]


class LegalizeRanges(Rewrite):
    """Range(start, limit, delta) → start + delta * CumSum(Expand(1, [count]), exclusive=1), for integers.

    Legal because a range has count = max(⌈(limit - start) / delta⌉, 0) elements, and the exclusive sums of ones are
    0, 1, 2 and so on. The pass belongs to the target tract.
    """

    name = "legalize_ranges"
    op_types = ("Range",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one Range."""
        start, limit, delta = node.inputs
        step = constant_number(delta)
        if start is None or limit is None or start.dtype not in (DataType.INT32, DataType.INT64):
            return False
        if not step:
            return self.declines(node, "the step is not a constant")
        f, sizes = NodeBuilder(node, editor, start.dtype), dims(node.outputs[0])
        starts_at_zero = constant_number(start) == 0
        shape = f.Unsqueeze(_count(f, start, limit, int(step), starts_at_zero, sizes), [0], sizes=(1,))
        ones = f.Expand(f.constant(1), f.Cast(shape, to=DataType.INT64) if shape.dtype != DataType.INT64 else shape)
        operands: list[Value | None] = [ones, f.constant(0)]
        if starts_at_zero and step == 1:
            editor.replace(node, "CumSum", operands, {"exclusive": 1})
            return True
        positions = f.CumSum(*operands, exclusive=1, sizes=sizes)
        if starts_at_zero:
            editor.replace(node, "Mul", [positions, delta], {})
        else:
            scaled = positions if step == 1 else f.Mul(positions, delta, sizes=sizes)
            editor.replace(node, "Add", [start, scaled], {})
        return True


def _count(
    f: NodeBuilder, start: Value, limit: Value, step: int, starts_at_zero: bool, sizes: tuple[int | str, ...] | None
) -> Value:
    """Returns the number of elements of a range, whose shape is ``sizes``.

    A Div of integers that are not negative rounds down. A limit that is the size of the result is not negative, and a
    Max of it would hide the size from tract.
    """
    is_size = step == 1 and sizes is not None
    if starts_at_zero and step > 0 and (is_size or is_nonnegative(limit)):
        distance = limit
    else:
        distance = f.Max(f.Sub(limit, start) if step > 0 else f.Sub(start, limit), 0, sizes=())
    return distance if abs(step) == 1 else f.Div(f.Add(distance, abs(step) - 1, sizes=()), abs(step), sizes=())
