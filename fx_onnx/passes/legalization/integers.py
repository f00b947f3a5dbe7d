"""Legalization of comparisons, logic and integer arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import add, mul

import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.table import DEFAULT, legalizes
from fx_onnx.passes.matchers import constant_array
from fx_onnx.passes.rules import Result

__all__ = ["chosen", "legalize_integer_extrema"]
_NARROW = (DataType.BOOL, DataType.INT8, DataType.UINT8, DataType.INT16, DataType.UINT16, DataType.INT32)
_LIMIT = 2**31
_AXIS = 2**28
"""No axis of a tensor has as many elements. Sums and small multiples of sizes then fit into 32 bits."""

_SIZES = ("Shape", "ArgMax", "ArgMin", "NonZero")
# Operators that return elements of their inputs at these places.
_MOVEMENTS: dict[str, tuple[int, ...]] = {
    "Identity": (0,), "Squeeze": (0,), "Unsqueeze": (0,), "Reshape": (0,), "Expand": (0,), "Transpose": (0,),
    "Gather": (0,), "Slice": (0,), "Where": (1, 2), "Neg": (0,), "Abs": (0,),
}  # fmt: skip
# The bound of a result from the bounds of the operands. A quotient is not above the dividend, because the divisor is an
# integer; a remainder is below the divisor; a range lies between its ends.
_BOUNDS: dict[str, Callable[..., int]] = {
    "Add": add, "Sub": add, "Mul": mul, "Div": lambda a, _: a, "Mod": lambda _, b: b,
    "Range": lambda start, limit, _: max(start, limit),
    **dict.fromkeys(("Max", "Min", "Concat"), lambda *bounds: max(bounds)),
}  # fmt: skip
_DEPTH = 8  # the longest chain of operands that is followed; expressions over sizes are shorter


def chosen(f: NodeBuilder, node: ir.Node, values: Sequence[Value | None]) -> Value | None:
    """Computes Max, Min or Clip of numbers that are not NaN by comparisons."""
    x, *others = values
    for index, bound in enumerate(others):
        exceeds = f.Greater if node.op_type == "Max" or (node.op_type == "Clip" and not index) else f.Less
        x = x if bound is None else f.Where(exceeds(x, bound), x, bound)
    return x


@legalizes("Max(*values)", "Min(*values)", "Clip(*values)", "Sign(*values)", since=9, targets=(DEFAULT,))
def legalize_integer_extrema(f: NodeBuilder, node: ir.Node, values: Sequence[Value | None]) -> Result:
    """Max(a, b), Min(a, b) → Where(a > b, a, b), Where(a < b, a, b); Clip, Sign → comparisons, for int64.

    Legal because these are the definitions. Numbers that fit into 32 bits, such as sizes, keep the operators. ONNX
    Runtime's CPU kernels of these operators are wrong where the upper 32 bits of two numbers are equal and bit 31
    differs: ``Max(2³¹, 0)`` is 0 (measured with ONNX Runtime 1.31.1). Greater, Less and Where are right.
    """
    x = values[0]
    if x is None or x.dtype != DataType.INT64:
        return None
    if all(value is None or _bound(value) < _LIMIT for value in values):
        return "the numbers fit into 32 bits"
    if node.op_type == "Sign":
        return f.Sub(*(f.Cast(sign, to=DataType.INT64) for sign in (f.Greater(x, 0), f.Less(x, 0))))
    return chosen(f, node, values)


def _bound(value: Value | None, depth: int = _DEPTH) -> int:
    """Returns a number that the absolute value of no element exceeds; ``_LIMIT`` if it is not known to be smaller."""
    array = constant_array(value)
    if array is not None:
        return max(abs(int(array.min())), abs(int(array.max()))) if array.size else 0
    node = value.producer() if value is not None else None
    if node is None or node.domain or not depth:
        return _LIMIT
    if node.op_type in _SIZES:
        return _AXIS
    if node.op_type == "Cast" and node.inputs[0] is not None and node.inputs[0].dtype in _NARROW:
        return _LIMIT - 1
    if node.op_type in _MOVEMENTS:
        return max(_bound(node.inputs[index], depth - 1) for index in _MOVEMENTS[node.op_type])
    if node.op_type in _BOUNDS:
        return min(_BOUNDS[node.op_type](*(_bound(operand, depth - 1) for operand in node.inputs)), _LIMIT)
    return _LIMIT
