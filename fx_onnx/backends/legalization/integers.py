"""Legalization of comparisons, logic and integer arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.onnx_model.dtypes import is_float, is_integer
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import round_half_to_even
from fx_onnx.passes.legalization.integers import chosen
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import constant_array, constant_number, dims, has_dtype, producer_of
from fx_onnx.passes.rules import Result

__all__ = [
    "legalize_bits",
    "legalize_boolean_casts",
    "legalize_boolean_counts",
    "legalize_complements",
    "legalize_integer_argmax",
    "legalize_integer_powers",
    "legalize_is_inf",
    "legalize_is_nan",
    "legalize_less",
    "legalize_narrow_fills",
    "legalize_round",
    "legalize_unsigned_constants",
    "legalize_unsigned_steps",
    "legalize_where",
]


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
        return f.emit(node.op_type, [f.Cast(operand, to=DataType.DOUBLE) for operand in operands], {})[0]

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
    return f.Cast(f.Sub(*(f.Cast(sign, to=dtype) for sign in (f.Greater(value, 0.0), f.Less(value, 0.0)))), to=x.dtype)


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
    chosen, other = (f.Cast(mask, to=f.dtype) for mask in (condition, f.Not(condition)))
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


_LONGEST_PRODUCT = 64
_NO_FRACTION = 2.0**23
"""From here on, float32 has no fractions."""

# ---------------------------------------------------------------- casts and bits


@legalizes("Cast(~Cast(x, to=UINT8), to=to)", targets=("tensorrt",), after_casts=True)
def legalize_unsigned_steps(f: NodeBuilder, x: Value, to: int) -> Result:
    """Cast(Cast(x) to uint8) → Cast(Mod(x, 256)) for integers, and Cast(Cast(x) to int32) for floats.

    Legal because a cast to uint8 keeps the last 8 bits of an integer, and cuts the fraction of a float from 0 to 255.
    TensorRT for RTX (1.7.1) has uint8 in inputs and outputs of the model only.
    """
    if x.dtype is None or x.dtype == DataType.UINT8:
        return None
    if is_integer(x.dtype):
        return f.Cast(f.Mod(f.Cast(x, to=DataType.INT32) if x.dtype.bitwidth < 32 else x, 256), to=to)
    return f.Cast(f.Cast(x, to=DataType.INT32), to=to)


def _as_int32(f: NodeBuilder, x: Value) -> Value:
    is_empty = x.is_initializer() and 0 in (dims(x) or ())
    return f.constant(np.zeros(dims(x) or (), np.int32)) if is_empty else f.Cast(x, to=DataType.INT32)


@legalizes("Identity(*operands)", "Cast(*operands)", "Equal(*operands)", targets=("tensorrt",), after_casts=True)
def legalize_unsigned_constants(f: NodeBuilder, node: ir.Node, operands: Sequence[Value]) -> Result:
    """Identity(c) → Cast(Cast(c) to int32) for a constant c of uint8; Equal(c, x) → Equal of both in int32.

    Legal because int32 has all numbers of uint8. TensorRT for RTX (1.7.1) reads a constant of uint8 as int32, and ends
    at one without elements.
    """
    constants = [x for x in operands if x.dtype == DataType.UINT8 and x.is_initializer()]
    if not constants or (node.op_type == "Cast" and 0 not in (dims(constants[0]) or ())):
        return None
    if node.op_type == "Equal":
        return f.Equal(*(_as_int32(f, x) for x in operands))
    return f.Cast(_as_int32(f, operands[0]), to=node.outputs[0].dtype)


@legalizes("BitwiseNot(x)", targets=("tensorrt",))
@legalizes("BitwiseNot(x)", until=17)
def legalize_complements(f: NodeBuilder, x: Value) -> Result:
    """BitwiseNot(x) → -1 - x, or max - x for unsigned integers; in INT64 for integers of 8 and 16 bits.

    Legal because integers are two's complements: x + ~x has all bits set. Sub has small integers from opset 14 on.
    """
    if f.dtype.bitwidth >= 32:
        return f.Sub(f.constant(np.array(~f.dtype.numpy().type(0))), x)
    ones = f.constant(-1 if f.dtype.is_signed() else (1 << f.dtype.bitwidth) - 1, DataType.INT64)
    return f.Cast(f.Sub(ones, f.Cast(x, to=DataType.INT64)), to=f.dtype)


@legalizes("BitwiseAnd(*operands)", "BitwiseOr(*operands)", "BitwiseXor(*operands)", targets=("tensorrt",))
@legalizes("BitwiseAnd(*operands)", "BitwiseOr(*operands)", "BitwiseXor(*operands)", until=17)
def legalize_bits(f: NodeBuilder, node: ir.Node, operands: Sequence[Value]) -> Result:
    """BitwiseAnd, BitwiseOr, BitwiseXor → arithmetic on the bits, along a new last axis.

    Legal because the bits of a two's complement are the digits of x modulo 2ⁿ. The bits take n times the memory of the
    result during the computation.
    """
    count = f.dtype.bitwidth
    first, second = (_bits(f, x, count) for x in operands)
    if node.op_type == "BitwiseAnd":
        bits = f.Mul(first, second)
    else:
        bits = f.Max(first, second) if node.op_type == "BitwiseOr" else f.Abs(f.Sub(first, second))
    weights = [1 << bit % 32 for bit in range(count)]
    if f.dtype.is_signed() or count == 64:
        weights[-1] = -weights[-1]
    weighted = f.Mul(bits, weights)
    if count < 64:
        total = f.ReduceSum(weighted, [-1], keepdims=0)
    else:  # two sums of 32 bits, because ONNX Runtime's ReduceSum of INT64 is exact up to 2⁵³
        halves = f.emit("Split", [weighted, [32, 32]], {"axis": -1}, outputs=2)
        low, high = (f.ReduceSum(half, [-1], keepdims=0) for half in halves)
        total = f.Add(f.Mul(high, 1 << 32), low)
    return f.Cast(total, to=f.dtype)


def _bits(f: NodeBuilder, x: Value, count: int) -> Value:
    """Returns the bits of x along a new last axis, as INT64. No intermediate number leaves the range of INT64."""
    shifted = f.Unsqueeze(f.Cast(x, to=DataType.INT64), [-1])
    exponents = np.arange(count)
    for powers in (2 ** np.minimum(exponents, 62), np.where(exponents == 63, 2, 1))[: 2 if count == 64 else 1]:
        shifted = f.Div(f.Sub(shifted, f.Mod(shifted, powers)), powers)
    return f.Mod(shifted, [2])


# ---------------------------------------------------------------- powers, remainders and rounding


@legalizes("Pow(x, y)", until=11)
def power_of_one_type(f: NodeBuilder, x: Value, y: Value) -> Result:
    """Pow(x, y of another type) → Pow(x, Cast(y)); Pow(x: integers, n) → a product of the squares that n contains.

    Legal because opset 11 has Pow of two floats of one type. An integer exponent of a float is exact in this type up to
    2¹¹ for float16, 2²⁴ for float32 and 2⁵³ for float64. Integers to the power of floats are refused.
    """
    known, exponent = constant_array(y), constant_number(y)
    if is_float(f.dtype):
        if y.dtype is x.dtype:
            return None
        return f.Pow(x, f.Cast(y, to=f.dtype) if known is None else known.astype(f.dtype.numpy()))
    if exponent is not None and exponent == int(exponent) and 1 <= exponent <= _LONGEST_PRODUCT:
        return _product(f, x, int(exponent))
    if y.dtype is None or not is_integer(y.dtype):
        return "it raises integers to the power of a float"
    return _power_of_integers(f, x, f.Cast(y, to=DataType.INT64))


@legalizes("Pow(x, y)", targets=("onnxruntime-cuda",), where={"x": _is_integer, "y": _is_integer})
def legalize_integer_powers(f: NodeBuilder, x: Value, y: Value) -> Result:
    """Pow(x, y) of integers → a product of x², x⁴, … for the bits of y.

    Legal because this is exact. ONNX Runtime's CUDA provider (measured with 1.31.1) computes the power in floats and
    rounds it down, so that 3 to the power of 1 is 2.
    """
    return power_of_one_type.function(f, x, y)


def _power_of_integers(f: NodeBuilder, x: Value, exponent: Value) -> Value:
    """Multiplies x², x⁴, … for the bits of the exponent.

    Six bits are enough: the 64th power of other numbers than 0, 1 and -1 is too large for any integer type. To a
    negative power, these become 0, and -1 and 1 stay 1 or -1.
    """
    is_negative = f.Less(exponent, 0)
    magnitude = f.Where(is_negative, f.Neg(exponent), exponent)
    square, result = x, f.constant(1)
    for bit in range(6):
        is_set = f.Equal(f.Mod(f.Div(magnitude, 1 << bit), 2), 1)
        result = f.Mul(result, f.Where(is_set, square, 1))
        square = f.Mul(square, square)
    is_unit = f.Equal(f.Mul(x, x), 1)
    is_zero = f.And(f.Equal(x, 0), f.Not(f.Equal(exponent, 0)))
    return f.Where(f.Or(is_zero, f.And(is_negative, f.Not(is_unit))), 0, result)


def _product(f: NodeBuilder, x: Value, count: int) -> Value:
    """Multiplies x by itself, by repeated squaring."""
    if count == 1:
        return x
    half = _product(f, x, count // 2)
    square = f.Mul(half, half)
    return f.Mul(square, x) if count % 2 else square


@legalizes("Mod(a, b, fmod=fmod)", until=9)
def remainder_of_division(f: NodeBuilder, a: Value, b: Value, fmod: int) -> Result:
    """Mod(a, b) of integers → r = a - Div(a, b) * b, plus b where the signs of r and b differ; with fmod=1 → r.

    Legal because Div rounds towards zero, so that r has the sign of a, and Mod returns the sign of b.
    """
    if is_float(f.dtype):
        return "opset 9 has no remainder of floats"
    if fmod and ((known := constant_array(b)) is None or (known == -1).any()):
        b = f.Abs(b)  # the sign does not matter, and Div of the lowest integer by -1 overflows
    rest = f.Sub(a, f.Mul(f.Div(a, b), b))
    if fmod:
        return rest
    # ONNX Runtime's Sign of INT64 is wrong from 2³¹ to 2³² - 1.
    differ = f.And(f.Xor(f.Less(rest, 0), f.Less(b, 0)), f.Not(f.Equal(rest, 0)))
    return f.Where(differ, f.Add(rest, b), rest)


@legalizes("Round(x)", until=10)
def round_by_floor(f: NodeBuilder, x: Value) -> Result:
    """Round(x) → Floor(x), plus 1 where the rest is more than a half, or a half above an odd number.

    Legal because this is the definition; the rest x - Floor(x) is exact.
    """
    return round_half_to_even(f, x)


@legalizes("Round(x)", targets=("mnn",))
def legalize_round(f: NodeBuilder, x: Value) -> Result:
    """Round(x) → Where(2^23 > |x|, ((|x| + 2^23) - 2^23) · Sign(x), x), for float32.

    Legal because the sum has no fraction bits, and an addition rounds halves to the even number. MNN (measured with
    3.6.1) rounds halves away from zero.
    """
    if x.dtype != DataType.FLOAT:
        return "the dtype is not float32"
    size = f.Abs(x)
    rounded = f.Mul(f.Sub(f.Add(size, _NO_FRACTION), _NO_FRACTION), f.Sign(x))
    return f.Where(f.Greater(_NO_FRACTION, size), rounded, x)


# ---------------------------------------------------------------- extrema


@legalizes("Max(*values)", "Min(*values)", "Clip(*values)", until=11)
def extrema_by_comparisons(f: NodeBuilder, node: ir.Node, values: Sequence[Value | None]) -> Result:
    """Max(a, b: integers), Min, Clip → Where(a > b, a, b), Where(a < b, a, b); Clip of floats → Min(Max(x, low), high).

    Legal because these are the definitions, and Max and Min are associative. ONNX Runtime has a Clip of opset 11 for
    float32 only. Floats keep Max and Min.
    """
    if not is_float(f.dtype):
        return chosen(f, node, values)
    return limited(f, *values) if node.op_type == "Clip" and f.dtype is not DataType.FLOAT else None


@legalizes("Clip(x, low | None, high | None)", until=10)
def clip_by_attributes(f: NodeBuilder, x: Value, low: Value | None, high: Value | None) -> Result:
    """Clip(x, low, high) → Min(Max(x, low), high) unless both bounds are constants, which are attributes.

    Legal because this is the definition of Clip. An absent bound would be the largest finite number in opset 10.
    """
    known = f.dtype is DataType.FLOAT and all(constant_array(bound) is not None for bound in (low, high))
    return None if known else limited(f, x, low, high)


def limited(f: NodeBuilder, x: Value | None, low: Value | None = None, high: Value | None = None) -> Value | None:
    """Returns Min(Max(x, low), high), where each bound may be absent."""
    result = x if low is None else f.Max(x, low)
    return result if high is None else f.Min(result, high)


@legalizes("ArgMax(x)", "ArgMin(x)", since=13, targets=("onnxruntime-cuda",))
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


@legalizes("CumSum(~Cast(b, to=INT64), axis)", targets=("tract",), where={"b": has_dtype(DataType.BOOL)})
def legalize_boolean_counts(f: NodeBuilder, node: ir.Node, b: Value, axis: Value) -> Result:
    """CumSum(Cast(b, int64)) → Cast(CumSum(Cast(b, int32)), int64), for booleans b.

    Legal because no count exceeds the number of elements, which int32 holds. tract (measured with 0.23.9) reads int64
    as sizes, and its CumSum of sizes fails in a run: the positions of tokens that a mask or a padding token tells.
    """
    counts = f.CumSum(f.Cast(b, to=DataType.INT32), axis, **dict(node.attributes))
    return f.Cast(counts, to=DataType.INT64)


@legalizes("ConstantOfShape(shape, value=value)", targets=("mnn",))
def legalize_narrow_fills(f: NodeBuilder, shape: Value, value: ir.TensorProtocol | None) -> Result:
    """ConstantOfShape(s) of int8, uint8 or float16 → Cast(ConstantOfShape(s)) from float32.

    Legal because float32 has all numbers of these dtypes. MNN (measured with 3.6.1, on a CPU) returns memory that was
    not written for int8 and uint8, and crashes at float16.
    """
    if value is None or value.dtype not in (DataType.INT8, DataType.UINT8, DataType.FLOAT16):
        return None
    number = ir.tensor(np.array(value.numpy(), dtype=np.float32))
    return f.Cast(f.ConstantOfShape(shape, value=number), to=value.dtype)
