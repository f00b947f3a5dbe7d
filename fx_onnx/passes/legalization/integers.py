"""Legalization of operators of integers and of narrow dtypes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import add, mul

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.core.dtypes import is_float
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import constant_array, has_dtype
from fx_onnx.passes.rules import Result, rule

__all__ = [
    "legalize_boolean_counts",
    "legalize_integer_argmax",
    "legalize_integer_extrema",
    "legalize_narrow_fills",
]

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


@rule("Max(*values)", "Min(*values)", "Clip(*values)", "Sign(*values)", since=9)
def legalize_integer_extrema(f: NodeBuilder, node: ir.Node, values: Sequence[Value | None]) -> Result:
    """Max(a, b), Min(a, b) → Where(a > b, a, b), Where(a < b, a, b); Clip, Sign → comparisons, for int64.

    Legal because these are the definitions. Numbers that fit into 32 bits, such as sizes, keep the operators. ONNX
    Runtime's CPU kernels of these operators are wrong where the upper 32 bits of two numbers are equal and bit 31
    differs: ``Max(2³¹, 0)`` is 0 (measured with ONNX Runtime 1.31.1). Greater, Less and Where are right.
    """
    x, *others = values
    if x is None or x.dtype != DataType.INT64:
        return None
    if all(each is None or _bound(each) < _LIMIT for each in values):
        return "the numbers fit into 32 bits"
    if node.op_type == "Sign":
        return f.Sub(*(f.Cast(each, to=DataType.INT64) for each in (f.Greater(x, 0), f.Less(x, 0))))
    for place, bound in enumerate(others):
        exceeds = f.Greater if node.op_type == "Max" or (node.op_type == "Clip" and not place) else f.Less
        x = x if bound is None else f.Where(exceeds(x, bound), x, bound)
    return x


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
        return max(_bound(node.inputs[place], depth - 1) for place in _MOVEMENTS[node.op_type])
    if node.op_type in _BOUNDS:
        return min(_BOUNDS[node.op_type](*(_bound(each, depth - 1) for each in node.inputs)), _LIMIT)
    return _LIMIT


@rule("ArgMax(x)", "ArgMin(x)", since=13)
def legalize_integer_argmax(f: NodeBuilder, node: ir.Node, x: Value) -> Result:
    """ArgMax(x, axis) → Squeeze(TopK(x, 1, axis).Indices, axis), for integers.

    Legal because TopK puts the first of equal elements first, as ArgMax does. ONNX Runtime's CUDA provider has ArgMax
    of floats and TopK of integers. TopK has 8-bit and 16-bit integers from opset 11 on.
    """
    if x.dtype is None or is_float(x.dtype):
        return None
    if f.attribute("select_last_index", 0):
        return "TopK has no form that returns the last of equal elements"
    axis, largest = f.attribute("axis", 0), int(node.op_type == "ArgMax")
    indices = f.emit("TopK", [x, [1]], {"axis": axis, "largest": largest}, outputs=2)[1]
    return indices if f.attribute("keepdims", 1) else f.Squeeze(indices, [axis])


@rule("CumSum(~Cast(b, to=INT64), axis)", where={"b": has_dtype(DataType.BOOL)})
def legalize_boolean_counts(f: NodeBuilder, node: ir.Node, b: Value, axis: Value) -> Result:
    """CumSum(Cast(b, int64)) → Cast(CumSum(Cast(b, int32)), int64), for booleans b.

    Legal because no count exceeds the number of elements, which int32 holds. tract (measured with 0.23.9) reads int64
    as sizes, and its CumSum of sizes fails in a run: the positions of tokens that a mask or a padding token tells.
    """
    counts = f.CumSum(f.Cast(b, to=DataType.INT32), axis, **dict(node.attributes))
    return f.Cast(counts, to=DataType.INT64)


@rule("ConstantOfShape(shape, value=value)")
def legalize_narrow_fills(f: NodeBuilder, shape: Value, value: ir.TensorProtocol | None) -> Result:
    """ConstantOfShape(s) of int8, uint8 or float16 → Cast(ConstantOfShape(s)) from float32.

    Legal because float32 has all numbers of these dtypes. MNN (measured with 3.6.1, on a CPU) returns memory that was
    not written for int8 and uint8, and crashes at float16.
    """
    if value is None or value.dtype not in (DataType.INT8, DataType.UINT8, DataType.FLOAT16):
        return None
    number = ir.tensor(np.array(value.numpy(), dtype=np.float32))
    return f.Cast(f.ConstantOfShape(shape, value=number), to=value.dtype)
