"""Max, Min, Clip and Sign of int64 as comparisons, for runtimes that compare the halves of the numbers wrongly.

ONNX Runtime's CPU kernels of these operators are wrong where the upper 32 bits of two numbers are equal and bit 31
differs: ``Max(2³¹, 0)`` is 0 (measured with ONNX Runtime 1.31.1). Greater, Less and Where are right.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import constant_array, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeIntegerExtrema"]

_NARROW = (DataType.BOOL, DataType.INT8, DataType.UINT8, DataType.INT16, DataType.UINT16, DataType.INT32)
_INT32 = np.iinfo(np.int32)
# Sizes, and indices along an axis. A tensor has fewer than 2³¹ elements along an axis.
_SIZES = ("Shape", "Size", "Range", "ArgMax", "ArgMin", "NonZero")
# What is computed from sizes counts as a size: it is not above the number of elements of some tensor.
_FROM_SIZES = ("Add", "Sub", "Mul", "Div", "Mod", "Neg", "Abs", "Max", "Min")
# Operators that return elements of their inputs at these places.
_MOVEMENTS: dict[str, tuple[int, ...]] = {
    "Identity": (0,), "Squeeze": (0,), "Unsqueeze": (0,), "Reshape": (0,), "Expand": (0,), "Transpose": (0,),
    "Gather": (0,), "Slice": (0,), "Where": (1, 2),
}  # fmt: skip
_DEPTH = 16  # the longest chain of operands that is followed; expressions over sizes are shorter


class LegalizeIntegerExtrema(Rewrite):
    """Max(a, b), Min(a, b) → Where(a > b, a, b), Where(a < b, a, b); Clip, Sign → comparisons, for int64.

    Legal because these are the definitions. Numbers that fit into 32 bits, such as sizes, keep the operators.
    """

    name = "legalize_integer_extrema"
    op_types = ("Max", "Min", "Clip", "Sign")

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one Max, Min, Clip or Sign."""
        x, *others = node.inputs
        if x is None or x.dtype != DataType.INT64 or editor.opset < 9:
            return False
        if all(each is None or _fits(each) for each in node.inputs):
            return self.declines(node, "the numbers fit into 32 bits")
        f = NodeBuilder(node, editor, x.dtype)
        if node.op_type == "Sign":
            above, below = (f.Cast(each, to=int(DataType.INT64)) for each in (f.Greater(x, 0), f.Less(x, 0)))
            editor.replace(node, "Sub", [above, below], {})
            return True
        if node.op_type == "Clip":
            low, high = (*others, None, None)[:2]
            bounds = [(_larger, low), (_smaller, high)]
        else:
            bounds = [(_larger if node.op_type == "Max" else _smaller, each) for each in others]
        result = reduce(lambda value, bound: bound[0](f, value, bound[1]), bounds, x)
        return editor.replace_with_value(node, result)


def _larger(f: NodeBuilder, value: Value, bound: Value | None) -> Value:
    return value if bound is None else f.Where(f.Greater(value, bound), value, bound)


def _smaller(f: NodeBuilder, value: Value, bound: Value | None) -> Value:
    return value if bound is None else f.Where(f.Less(value, bound), value, bound)


def _fits(value: Value | None, depth: int = _DEPTH) -> bool:
    """Returns whether all elements are known to fit into 32 bits."""
    array = constant_array(value)
    if array is not None:
        return bool(((array >= _INT32.min) & (array <= _INT32.max)).all())
    return _is_size(value, depth) or _is_narrow(value, depth)


def _is_size(value: Value | None, depth: int) -> bool:
    return producer_of(value, *_SIZES) is not None or _all_operands(value, depth, _is_size_or_constant, _FROM_SIZES)


def _is_size_or_constant(value: Value | None, depth: int) -> bool:
    return _fits(value, 0) if constant_array(value) is not None else _is_size(value, depth)


def _is_narrow(value: Value | None, depth: int) -> bool:
    cast = producer_of(value, "Cast")
    source = cast.inputs[0] if cast is not None else None
    if source is not None and source.dtype in _NARROW:
        return True
    return _all_operands(value, depth, _fits, ())


def _all_operands(
    value: Value | None, depth: int, holds: Callable[[Value | None, int], bool], computed: tuple[str, ...]
) -> bool:
    """Returns whether a condition holds for all operands of a value that is moved, joined or computed from them."""
    node = producer_of(value, *_MOVEMENTS, "Concat", *computed)
    if node is None or not depth:
        return False
    places = _MOVEMENTS.get(node.op_type, range(len(node.inputs)))
    return all(holds(node.inputs[place], depth - 1) for place in places)
