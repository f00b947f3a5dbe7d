"""Legalization of comparisons, predicates and choices between two tensors."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.core.dtypes import is_float, is_integer
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import constant_array, dims, producer_of
from fx_onnx.passes.rules import Result

__all__ = ["legalize_boolean_casts", "legalize_is_inf", "legalize_is_nan", "legalize_less", "legalize_where"]


def _is_float(value: Value) -> bool:
    return value.dtype is not None and is_float(value.dtype)


def _is_integer(value: Value) -> bool:
    return value.dtype is not None and not is_float(value.dtype)


# ---------------------------------------------------------------- comparisons


@legalizes("GreaterOrEqual(a, b)", "LessOrEqual(a, b)", until=11)
def compare_twice(f: NodeBuilder, node: ir.Node, a: Value, b: Value) -> Result:
    """GreaterOrEqual(a, b) → Or(Greater(a, b), Equal(a, b)), LessOrEqual(a, b) → Or(Less(a, b), Equal(a, b)).

    Legal because this is the definition; for NaN, both comparisons are false.
    """
    return f.Or(f.emit(node.op_type.removesuffix("OrEqual"), [a, b], {})[0], f.Equal(a, b))


@legalizes("Equal(a, b)", until=10, where={"a": _is_float})
def equal_floats(f: NodeBuilder, a: Value, b: Value) -> Result:
    """Equal(a, b) of floats → Not(Less(a, b) or Greater(a, b) or a is NaN or b is NaN).

    Legal because exactly one of four holds for two floats: less, equal, greater, or one is NaN.
    """
    differs = f.Or(f.Less(a, b), f.Greater(a, b))
    for value in dict.fromkeys((a, b)):
        known = constant_array(value)
        if known is None or np.isnan(known).any():
            differs = f.Or(differs, f.IsNaN(value))
    return f.Not(differs)


@legalizes("Less(a, b)", "Greater(a, b)", until=8, where={"a": _is_integer})
def compare_halves(f: NodeBuilder, node: ir.Node, a: Value, b: Value) -> Result:
    """Less(a, b) of integers, Greater → the same of the high 32 bits, or of the low bits where those are equal.

    Legal because FLOAT64 represents 32 bits exactly, and Div rounds all numbers of one sign in one direction.
    """

    def compared(*operands: Value) -> Value:
        return f.emit(node.op_type, [f.Cast(each, to=DataType.DOUBLE) for each in operands], {})[0]

    if a.dtype is DataType.UINT64:
        return "it compares UINT64"
    if a.dtype is not DataType.INT64:
        return compared(a, b)
    highs = [f.Div(x, 1 << 32) for x in (a, b)]
    lows = [f.Sub(x, f.Mul(high, 1 << 32)) for x, high in zip((a, b), highs, strict=True)]
    return f.Or(compared(*highs), f.And(f.Equal(*highs), compared(*lows)))


@legalizes("Less(a, b)", targets=("mnn",), where={"a": _is_float})
def legalize_less(f: NodeBuilder, a: Value, b: Value) -> Result:
    """Less(a, b) → Greater(b, a), for floats.

    Legal because the two are equal, also for NaN. MNN (measured with 3.6.1, on a CPU) computes a wrong Less of two
    negative float32 numbers: ``-3.0 < -1.0`` is false, ``-1.0 < -2.5`` is true. Its Greater, LessOrEqual and
    GreaterOrEqual are right.
    """
    return f.Greater(b, a)


# ---------------------------------------------------------------- predicates


@legalizes("IsNaN(x)", targets=("mnn",))
@legalizes("IsNaN(x)", until=8)
def legalize_is_nan(f: NodeBuilder, x: Value) -> Result:
    """IsNaN(x) → Not(Or(1 > x, x > 0)).

    Legal because every number is less than 1 or greater than 0, and comparisons with NaN are false. MNN (measured with
    3.6.1, on a CPU) does not load a model with IsNaN.
    """
    return f.Not(f.Or(f.Greater(1.0, x), f.Greater(x, 0.0)))


@legalizes("IsInf(x, detect_negative=below, detect_positive=above)", targets=("mnn",))
@legalizes("IsInf(x, detect_negative=below, detect_positive=above)", until=9)
def legalize_is_inf(f: NodeBuilder, x: Value, below: int, above: int) -> Result:
    """IsInf(x) → Greater(Abs(x), largest finite number), Greater(x, …), or Greater(-largest, x).

    Legal because only infinities are beyond the largest finite number, and comparisons with NaN are false. MNN
    (measured with 3.6.1, on a CPU) does not load a model with IsInf.
    """
    if not (below or above) or x.dtype is None:
        return "it detects no infinity"
    largest = float(np.finfo(x.dtype.numpy()).max)
    return f.Greater(f.Abs(x) if below and above else x, largest) if above else f.Greater(-largest, x)


@legalizes("Cast(x, to=BOOL)", targets=("mnn",))
def legalize_boolean_casts(f: NodeBuilder, x: Value) -> Result:
    """Cast(x) to bool → Not(x = 0).

    Legal because a Cast to bool is false for 0 only. MNN (measured with 3.6.1, on a CPU) keeps the number, so that
    ``And`` multiplies such numbers. Its comparisons are right, also for NaN and infinite numbers.
    """
    return None if x.dtype == DataType.BOOL else f.Not(f.Equal(x, 0))


@legalizes("Sign(x)", until=8)
def sign_of_comparisons(f: NodeBuilder, x: Value) -> Result:
    """Sign(x) → Cast(x > 0) - Cast(x < 0), of integers in FLOAT64.

    Legal because this is the definition, and a Cast to FLOAT64 keeps the sign.
    """
    value = x if _is_float(x) else f.Cast(x, to=DataType.DOUBLE)
    dtype = x.dtype if _is_float(x) or x.dtype in (DataType.INT32, DataType.INT64) else DataType.INT32
    return f.Cast(f.Sub(*(f.Cast(each, to=dtype) for each in (f.Greater(value, 0.0), f.Less(value, 0.0)))), to=x.dtype)


# ---------------------------------------------------------------- choices


@legalizes("Where(condition, a, b)", until=8)
def choose_by_products(f: NodeBuilder, condition: Value, a: Value, b: Value) -> Result:
    """Where(c, a, b) → c * a + (1 - c) * b of integers, Or(And(c, a), And(Not(c), b)) of booleans.

    Legal because a product with 0 is 0 and one with 1 is the number. That holds for two constants that are finite as
    well. Other floats are refused, because 0 times NaN is NaN.
    """
    if f.dtype is DataType.BOOL:
        return f.Or(f.And(condition, a), f.And(f.Not(condition), b))
    known = [constant_array(value) for value in (a, b)]
    if not is_integer(f.dtype) and any(array is None or not np.isfinite(array).all() for array in known):
        return "that opset has no operator that chooses between floats"
    chosen, other = (f.Cast(each, to=f.dtype) for each in (condition, f.Not(condition)))
    return f.Add(f.Mul(chosen, a), f.Mul(other, b))


@legalizes("Where(condition, x, y)", targets=("mnn",))
def legalize_where(f: NodeBuilder, node: ir.Node, condition: Value, x: Value, y: Value) -> Result:
    """Where(c, x, y) → Where(Not(c), y, x) where x has all sizes of the result, else Where(c, x, Expand(y, Shape(x))).

    Legal because both select the same elements. A y of one element, and one with all sizes, stay. MNN (measured with
    3.6.1, on a CPU) computes ``Where(condition, x, y)`` wrongly if the condition and x have the shape of the result and
    y has a smaller one: it reads memory after y. A y of one element is right, and so is a smaller x.
    """
    result, large, small = dims(node.outputs[0]), dims(x), dims(y)
    if _is_single(small) or _is_single(large) or (small is not None and small == result) or _is_expanded_to(y, x):
        return None
    if result is not None and small is not None and large == result:
        return f.Where(f.Not(condition), y, x)
    return f.Where(condition, x, f.Expand(y, f.Shape(x)))


def _is_expanded_to(y: Value, x: Value) -> bool:
    """Returns whether y is the result of ``Expand(..., Shape(x))``."""
    expand = producer_of(y, "Expand")
    shape = None if expand is None else producer_of(expand.inputs[1], "Shape")
    return shape is not None and shape.inputs[0] is x


def _is_single(sizes: tuple[int | str, ...] | None) -> bool:
    return sizes is not None and all(size == 1 for size in sizes)
