"""Legalization of products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import dims, has_dtype, initializer_tensor, producer_of
from fx_onnx.passes.rules import Result, rule

__all__ = [
    "legalize_gemm_bias",
    "legalize_integer_products",
    "legalize_matrix_times_vector",
    "legalize_repeated_constants",
    "legalize_unsigned_products",
]

_EXACT = 2**24 // (255 * 255)
"""The longest row whose products of 8-bit numbers have a sum of at most 2^24: float32 has all integers up to it."""


def _is_vector(value: Value) -> bool:
    return value.shape is not None and len(value.shape) == 1


@rule("MatMul(a, v)", since=13, where={"v": _is_vector})
def legalize_matrix_times_vector(f: NodeBuilder, a: Value, v: Value) -> Result:
    """MatMul(a, v) → Squeeze(MatMul(a, Unsqueeze(v, -1)), -1).

    Legal because ONNX defines the product with a vector in this way. Applies where ``v`` has rank 1 and ``a`` has a
    higher rank. ONNX Runtime's MatmulTransposeFusion replaces ``MatMul(Transpose(a), v)`` by
    ``FusedMatMul(a, v, transA=1)``, which multiplies the wrong elements if ``v`` is a vector: ``x.t() @ v`` is wrong.
    The Transpose need not be next to the MatMul, because ONNX Runtime moves it there. Measured with ONNX Runtime 1.31.1
    at opsets 18 to 26.
    """
    return None if _is_vector(a) else f.Squeeze(f.MatMul(a, f.Unsqueeze(v, [-1])), [-1])


@rule("Gemm(x, w, bias)", since=11, where={"bias": has_dtype(DataType.FLOAT16)})  # an earlier Gemm needs its bias
def legalize_gemm_bias(f: NodeBuilder, node: ir.Node, x: Value, w: Value, bias: Value) -> Result:
    """Gemm(x, w, b) → Gemm(x, w) + b, in float16.

    Legal where beta is 1, because this is ONNX's definition; the product is rounded to float16 before the addition.
    tract (measured with 0.23.9) adds the bias of a float16 Gemm in float32 and then refuses the dtype of the result.
    """
    if f.attribute("beta", 1.0) != 1.0:
        return "beta is not 1"
    return f.Add(f.Gemm(x, w, **{name: each for name, each in node.attributes.items() if name != "beta"}), bias)


@rule("MatMulInteger(a, b, *zero_points)")
def legalize_integer_products(f: NodeBuilder, a: Value, b: Value, zero_points: Sequence[Value | None]) -> Result:
    """MatMulInteger(a, b) → Cast(MatMul(Cast(a), Cast(b))) to int32; longer rows are the int32 sum of such parts.

    Legal because the float32 sums of at most 258 products of 8-bit numbers are exact. MNN (measured with 3.6.1, on a
    CPU) multiplies matrices of floats only.
    """
    rows, columns = dims(a), dims(b)
    if any(zero_points):
        return "there is a zero point"
    if rows is None or columns is None or len(columns) < 2 or not isinstance(length := columns[-2], int):
        return "the length of a row is dynamic"

    def part(x: Value, axis: int, start: int) -> Value:
        return x if length <= _EXACT else f.Slice(x, [start], [min(start + _EXACT, length)], [axis])

    first, second = f.Cast(a, to=DataType.FLOAT), f.Cast(b, to=DataType.FLOAT)
    products = [
        f.MatMul(part(first, len(rows) - 1, start), part(second, len(columns) - 2, start))
        for start in range(0, max(length, 1), _EXACT)
    ]
    return reduce(f.Add, [f.Cast(each, to=DataType.INT32) for each in products])


@rule(
    "MatMulInteger(a, b, *zero_points)", since=13, where={"a": has_dtype(DataType.UINT8)}
)  # earlier axes are an attribute
def legalize_unsigned_products(f: NodeBuilder, a: Value, b: Value, zero_points: Sequence[Value | None]) -> Result:
    """MatMulInteger(a, b) → MatMulInteger(a - 128, b) + 128 * ReduceSum(b), for a of uint8 and b of int8.

    Legal because a - 128 fits in int8, and int32 sums wrap around in the same way. ONNX Runtime's CUDA provider
    multiplies int8 only.
    """
    if b.dtype != DataType.INT8 or any(zero_points):
        return "b is not int8, or there is a zero point"
    half = np.array(128, np.int32)
    shifted = f.Cast(f.Sub(f.Cast(a, to=DataType.INT32), half), to=DataType.INT8)
    sums = f.ReduceSum(f.Cast(b, to=DataType.INT32), [-2], keepdims=1)
    return f.Add(f.MatMulInteger(shifted, b), f.Mul(sums, half))


def _is_constant(value: Value) -> bool:
    """Returns whether a value is a weight or a constant, or the Transpose of one."""
    transpose = producer_of(value, "Transpose")
    return initializer_tensor(value if transpose is None else transpose.inputs[0]) is not None


@rule(
    "MatMul(~(Tile | Expand)(c, n), w)",
    "Transpose(~(Tile | Expand)(c, n), perm=perm)",
    since=13,
    where={"c": _is_constant},
)
def legalize_repeated_constants(
    f: NodeBuilder, node: ir.Node, c: Value, n: Value, w: Value | None, perm: list[int] | None
) -> Result:
    """MatMul(Tile(c, n), w) → Tile(MatMul(c, w), n), the same for Expand, and for a Transpose before the product.

    Legal for constants c and w where the last axis of c is not repeated, because each row of the product depends on one
    row of c. tract (measured with 0.23.9) computes a product of two constants of which one is repeated a dynamic number
    of times without the repetition: the learned queries of a pooling head get a batch of 1.
    """
    before, after, columns = dims(c), dims(node.inputs[0]), dims(w)
    if initializer_tensor(n) is not None:
        return "the number of repetitions is a constant"
    if before is None or after is None or len(before) != len(after):
        return "the rank is unknown, or it changes"
    repeat = f.Expand if producer_of(node.inputs[0], "Expand") is not None else f.Tile
    if w is None:
        order = perm or list(range(len(before)))[::-1]
        return repeat(f.Transpose(c, perm=order), f.Gather(n, order))
    if initializer_tensor(w) is None or columns is None or len(columns) != 2 or before[-1] != after[-1]:
        return "the last axis is repeated, or w is no constant matrix"
    if producer_of(node.inputs[0], "Expand") is not None:
        n = f.Concat(f.Slice(n, [0], [-1]), [columns[1]], axis=0)
    return repeat(f.MatMul(c, w), n)
