"""Legalization of products and of quantization."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from string import ascii_lowercase

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import rank_of, round_half_to_even, size_of, with_shape
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import (
    attribute,
    constant_array,
    dims,
    has_dtype,
    initializer_tensor,
    is_read_by,
    producer_of,
)
from fx_onnx.passes.rules import Result

__all__ = [
    "asymmetry",
    "legalize_asymmetric_dequantization",
    "legalize_asymmetric_quantization",
    "legalize_dequantization",
    "legalize_dynamic_quantization",
    "legalize_gemm_bias",
    "legalize_integer_products",
    "legalize_labels",
    "legalize_products_of_integers",
    "legalize_quantization",
    "legalize_repeated_constants",
    "legalize_rounding",
    "legalize_unsigned_products",
    "legalize_weight_casts",
]


def _is_weight_of_8_bits(value: Value) -> bool:
    return value.dtype == DataType.INT8 and initializer_tensor(value) is not None


_EXACT = 2**24 // (255 * 255)
"""The longest row whose products of 8-bit numbers have a sum of at most 2^24: float32 has all integers up to it."""


@legalizes(  # an earlier Gemm needs its bias
    "Gemm(x, w, bias)", since=11, targets=("tract",), where={"bias": has_dtype(DataType.FLOAT16)}
)
def legalize_gemm_bias(f: NodeBuilder, node: ir.Node, x: Value, w: Value, bias: Value) -> Result:
    """Gemm(x, w, b) → Gemm(x, w) + b, in float16.

    Legal where beta is 1, because this is ONNX's definition; the product is rounded to float16 before the addition.
    tract (measured with 0.23.9) adds the bias of a float16 Gemm in float32 and then refuses the dtype of the result.
    """
    if f.attribute("beta", 1.0) != 1.0:
        return "beta is not 1"
    return f.Add(f.Gemm(x, w, **{name: attr for name, attr in node.attributes.items() if name != "beta"}), bias)


@legalizes("Einsum(*operands, equation=equation)", targets=("tensorrt",))
def legalize_labels(f: NodeBuilder, operands: Sequence[Value], equation: str) -> Result:
    """Einsum<'A,A->A'>(…) → Einsum<'a,a->a'>(…): other names for the labels.

    Legal because the names mean nothing where the result names its labels. TensorRT takes small letters only.
    """
    labels = sorted(set(filter(str.isalpha, equation)))
    free = iter(sorted(set(ascii_lowercase) - set(labels)))
    names = {label: next(free, "") for label in labels if label.isupper()}
    if not names:
        return None
    if not all(names.values()) or "->" not in equation:
        return "it has more than 26 labels, or their order is that of the result"
    return f.Einsum(*operands, equation=equation.translate(str.maketrans("".join(names), "".join(names.values()))))


@legalizes(
    "MatMul(a, b)",
    targets=("tensorrt",),
    where={"a": has_dtype(DataType.INT32, DataType.INT64, DataType.UINT32, DataType.UINT64)},
)
def legalize_products_of_integers(f: NodeBuilder, a: Value, b: Value) -> Result:
    """MatMul(a, b) → ReduceSum(Unsqueeze(a, -1) * Unsqueeze(b, -3), -2), for integers.

    Legal because this is the definition; a vector is a matrix of one row or column. TensorRT multiplies matrices of
    floats only.
    """
    is_row, is_column = (rank_of(with_shape(f, x)) == 1 for x in (a, b))
    rows = f.Unsqueeze(a, [-1]) if not is_row else f.Unsqueeze(a, [0, 2])
    columns = f.Unsqueeze(b, [-3]) if not is_column else f.Unsqueeze(b, [0, 2])
    product = f.ReduceSum(f.Mul(rows, columns), [-2], keepdims=0)
    lone = [axis for axis, is_lone in ((-2, is_row), (-1, is_column)) if is_lone]
    return f.Squeeze(product, lone) if lone else product


@legalizes("MatMulInteger(a, b, *zero_points)", targets=("mnn", "qnn", "tensorrt"))
def legalize_integer_products(f: NodeBuilder, a: Value, b: Value, zero_points: Sequence[Value | None]) -> Result:
    """MatMulInteger(a, b) → Cast(MatMul(Cast(a), Cast(b))) to int32; longer rows are the int32 sum of such parts.

    Legal because the float32 sums of at most 258 products of 8-bit numbers are exact. MNN (measured with 3.6.1, on a
    CPU) and TensorRT multiply matrices of floats only.
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
    return reduce(f.Add, [f.Cast(product, to=DataType.INT32) for product in products])


@legalizes(
    "MatMulInteger(a, b, *zero_points)",
    targets=("onnxruntime-cuda",),
    where={"a": has_dtype(DataType.UINT8)},
)
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


@legalizes(
    "MatMul(~(Tile | Expand)(c, n), w)",
    "Transpose(~(Tile | Expand)(c, n), perm=perm)",
    since=13,
    targets=("tract",),
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


# ---------------------------------------------------------------- older opsets


@legalizes("Gemm(a, b)", until=10)
def gemm_with_zero(f: NodeBuilder, node: ir.Node, a: Value, b: Value) -> Result:
    """Gemm(a, b) → Gemm(a, b, 0).

    Legal because adding 0 changes no number. Opset 10 requires the third input.
    """
    return f.Gemm(a, b, f.constant(np.zeros(1, f.dtype.numpy())), **dict(node.attributes))


@legalizes("MatMulInteger(a, b, a_zero | None, b_zero | None)", until=9)
def multiply_wide_integers(f: NodeBuilder, a: Value, b: Value, a_zero: Value | None, b_zero: Value | None) -> Result:
    """MatMulInteger(a, b, a_zero, b_zero) → MatMul(a - a_zero, b - b_zero) of INT32.

    Legal because this is the definition. A zero point for each row is refused.
    """

    def shifted(value: Value, zero: Value | None) -> Value:
        wide = f.Cast(value, to=DataType.INT32)
        return wide if zero is None else f.Sub(wide, f.Cast(zero, to=DataType.INT32))

    if any(zero is not None and rank_of(zero) > 0 for zero in (a_zero, b_zero)):
        return "its zero point is not a scalar"
    return f.MatMul(shifted(a, a_zero), shifted(b, b_zero))


@legalizes("Einsum(*operands)", targets=("qnn",))
@legalizes("Einsum(*operands)", until=11)
def einsum_by_products(f: NodeBuilder, operands: Sequence[Value]) -> Result:
    """Einsum(a, b) → ReduceSum(Mul(a, b)), with all labels of the equation as axes.

    Legal because this is the definition of Einsum. A product of two matrices becomes MatMul. A label that one operand
    repeats means its diagonal.
    """
    values = list(operands)
    terms, output = _labels(f, values)
    for index in range(len(terms)):
        while len(set(terms[index])) < len(terms[index]):
            values[index], terms[index] = _diagonal(f, values[index], terms[index])
    if len(terms) == 2 and (product := _matrix_product(f, values, terms, output)) is not None:
        return product
    order = [*output, *(label for label in dict.fromkeys("".join(terms)) if label not in output)]
    product = reduce(f.Mul, [_spread(f, value, term, order) for value, term in zip(values, terms, strict=True)])
    axes = list(range(len(output), len(order)))
    return f.ReduceSum(product, axes, keepdims=0) if axes else product


def _labels(f: NodeBuilder, values: list[Value]) -> tuple[list[str], str]:
    """Returns the labels of the operands and of the result; those of an ellipsis are characters that no equation has.

    Without an arrow, the result has the labels that occur once, in alphabetical order, after those of the ellipsis.
    """
    left, arrow, output = f.attribute("equation").replace(" ", "").partition("->")
    terms = left.split(",")
    counts = [rank_of(x) - len(t.replace("...", "")) if "..." in t else 0 for x, t in zip(values, terms, strict=True)]
    batch = [chr(code) for code in range(0x3B1, 0x3B1 + max(counts, default=0))]
    if not arrow:
        output = "..." + "".join(sorted(label for label in set(left) - set(",.") if left.count(label) == 1))
    terms = [t.replace("...", "".join(batch[len(batch) - count :])) for t, count in zip(terms, counts, strict=True)]
    return terms, output.replace("...", "".join(batch))


def _diagonal(f: NodeBuilder, value: Value, term: str) -> tuple[Value, str]:
    """Returns the diagonal along the axes of the first repeated label, which becomes the last axis, and the labels."""
    label = next(letter for letter in term if term.count(letter) > 1)
    first, second = [index for index, letter in enumerate(term) if letter == label][:2]
    others = [index for index in range(len(term)) if index not in (first, second)]
    steps = f.Add(size_of(f, value, first), [1])
    flat = f.Reshape(f.Transpose(value, perm=[*others, first, second]), [0] * len(others) + [-1])
    diagonal = f.Slice(flat, [0], [2**63 - 1], [len(others)], steps)
    return diagonal, "".join(term[index] for index in others) + label


def _spread(f: NodeBuilder, value: Value, term: str, order: list[str]) -> Value:
    """Returns the operand with one axis for each label of ``order``; a label that it does not have has size 1."""
    labels = [label for label in order if label in term]
    perm = [term.index(label) for label in labels]
    if perm != list(range(len(perm))):
        value = f.Transpose(value, perm=perm)
    missing = [axis for axis, label in enumerate(order) if label not in term]
    return f.Unsqueeze(value, missing) if missing else value


def _matrix_product(f: NodeBuilder, values: list[Value], terms: list[str], output: str) -> Value | None:
    """Computes an equation by MatMul; None unless each of two operands has one label alone, and one label is summed."""
    first, second = terms
    batch = [label for label in output if label in first and label in second]
    rows = [label for label in output if label in first and label not in second]
    columns = [label for label in output if label in second and label not in first]
    inner = [label for label in first if label in second and label not in output]
    covered = {*batch, *rows, *columns, *inner}
    if len(rows) != 1 or len(columns) != 1 or len(inner) != 1 or covered != {*first, *second}:
        return None
    a = f.Transpose(values[0], perm=[first.index(label) for label in [*batch, *rows, *inner]])
    b = f.Transpose(values[1], perm=[second.index(label) for label in [*batch, *inner, *columns]])
    order = [*batch, *rows, *columns]
    return f.Transpose(f.MatMul(a, b), perm=[order.index(label) for label in output])


@legalizes("QuantizeLinear(_, _, _ | None)", targets=("mnn",))
@legalizes("QuantizeLinear(_, _, _ | None)", until=9)
def legalize_quantization(f: NodeBuilder, node: ir.Node) -> Result:
    """QuantizeLinear(x, scale, zero_point) → Cast(Clip(Round(x / scale) + zero_point)).

    Legal because this is ONNX's definition of QuantizeLinear for 8-bit integers; both round half to even. MNN (3.6.1)
    computes any QuantizeLinear wrongly.
    """
    return _reason_against(f, node) or f.Cast(_quantized(f, node), to=node.outputs[0].dtype)


@legalizes(
    "QuantizeLinear(_, scale, _ | None)",
    targets=("openvino", "qnn", "tract"),
    where={"scale": lambda scale: initializer_tensor(scale) is None},
)
def legalize_dynamic_quantization(f: NodeBuilder, node: ir.Node) -> Result:
    """QuantizeLinear(x, scale, zero_point) → Cast(Clip(Round(x / scale) + zero_point)), where scale is computed.

    Legal because this is ONNX's definition of QuantizeLinear for 8-bit integers; both round half to even. OpenVINO
    (measured with 2026.4.1) reads QuantizeLinear as FakeQuantize, which takes no scale for each row of a dynamic axis.
    tract (0.23.9) and QNN (2.7) refuse any scale that is not a constant.
    """
    return legalize_quantization.function(f, node)


@legalizes("QuantizeLinear(x, scale, zero_point | None)", "DequantizeLinear(x, scale, zero_point | None)", until=12)
def quantize_along_axis(f: NodeBuilder, node: ir.Node, x: Value, scale: Value, zero_point: Value | None) -> Result:
    """QuantizeLinear<axis>(x, s, z) → Cast(Clip(Round(x / s) + z)), DequantizeLinear<axis>(x, s, z) → (x - z) * s.

    Legal because these are the definitions. With a scale for the whole tensor the operator stays, as opset 12 has it.
    """
    rank = None if scale.shape is None else len(scale.shape)
    if rank == 0:
        kept = {name: attr for name, attr in node.attributes.items() if name != "axis"}
        return f.emit(node.op_type, node.inputs, kept)[0]
    if rank != 1:
        return "its scale is not a scalar or a vector"
    if node.op_type == "QuantizeLinear":
        return legalize_quantization.function(f, node)
    return _dequantized(f, f.Cast(x, to=f.dtype), node, scale, zero_point)


@legalizes("DequantizeLinear(q, scale, zero_point | None)", until=9)
def dequantize_tensor(f: NodeBuilder, node: ir.Node, q: Value, scale: Value, zero_point: Value | None) -> Result:
    """DequantizeLinear(x, s, z) → (x - z) * s.

    Legal because this is the definition.
    """
    return _dequantized(f, f.Cast(q, to=f.dtype), node, scale, zero_point)


@legalizes("DequantizeLinear(q, scale, zero_point | None, block_size=block)", targets=("mnn",))
def legalize_dequantization(
    f: NodeBuilder, node: ir.Node, q: Value, scale: Value, zero_point: Value | None, block: int
) -> Result:
    """DequantizeLinear(q, scale, zero_point) → (Cast(q) - zero_point) * scale; q of a QuantizeLinear stays a float.

    Legal because this is ONNX's definition of both operators for integers. MNN (3.6.1) computes a DequantizeLinear of a
    weight wrongly.
    """
    quantize = producer_of(q, "QuantizeLinear")
    if dims(q) is None or scale.dtype != f.dtype or block:
        return "the rank is unknown, or there is a scale for each block"
    is_pair = quantize is not None and not _reason_against(f, quantize)
    number = _quantized(f, quantize) if quantize is not None and is_pair else f.Cast(q, to=f.dtype)
    return _dequantized(f, number, node, scale, zero_point)


@legalizes("DequantizeLinear(QuantizeLinear(x, step, low | None), scale, high | None)", targets=("webgpu",))
def legalize_rounding(
    f: NodeBuilder, node: ir.Node, x: Value, step: Value, low: Value | None, scale: Value, high: Value | None
) -> Result:
    """DequantizeLinear(QuantizeLinear(x, s, z), t, z) → ((Clip(x / s, least - z, most - z) + c) - c) * t.

    Legal because the limits are integers, and with c = 1.5 * 2^23 the sum has no fraction bits, so the addition rounds
    halves to the even number. WebGPU has no kernel for QuantizeLinear and Round.
    """
    zeros = {0 if value is None else _only_number(value) for value in (low, high)}
    zero, quantize = zeros.pop(), producer_of(node.inputs[0], "QuantizeLinear")
    if quantize is None or zeros or zero is None or x.dtype != DataType.FLOAT or f.dtype != DataType.FLOAT:
        return "it is not float32, or the two zero points are not one constant"
    dtype = quantize.outputs[0].dtype
    if dtype is None or dtype not in _WHOLE or any(attribute(part, "block_size", 0) for part in (quantize, node)):
        return "it has not 8 or 16 bits, or there is a scale for each block"
    limits = np.iinfo(dtype.numpy())
    clipped = f.Clip(f.Div(x, _aligned(f, quantize, step)), float(limits.min - zero), float(limits.max - zero))
    return f.Mul(f.Sub(f.Add(clipped, _NO_FRACTION), _NO_FRACTION), _aligned(f, node, scale))


def _only_number(value: Value) -> int | None:
    array = constant_array(value)
    return None if array is None or array.size != 1 else int(array.item())


_WHOLE = (DataType.INT8, DataType.UINT8, DataType.INT16, DataType.UINT16)
_NO_FRACTION = 1.5 * 2**23


def asymmetry(node: ir.Node) -> str:
    """Returns why TensorRT refuses a QuantizeLinear or DequantizeLinear; empty if it takes it.

    Source: "Working with Quantized Types" in TensorRT's documentation. Quantization is symmetric, activations have one
    scale, and scales are build-time constants.
    """
    x, scale, zero_point = [*node.inputs, None][:3]
    dtype = node.outputs[0].dtype if node.op_type == "QuantizeLinear" else x.dtype if x is not None else None
    if dtype in (DataType.UINT8, DataType.INT16, DataType.UINT16, DataType.UINT4):
        return f"TensorRT has no quantization to {dtype.name.lower()}"
    if not _is_of_constants(scale):
        return "the scale is computed, and TensorRT needs a constant"
    shift = None if zero_point is None else zero_point.const_value
    if zero_point is not None and (shift is None or shift.numpy().any()):
        return "the zero point is not 0, and TensorRT quantizes symmetrically"
    if node.op_type == "QuantizeLinear" and dims(scale) not in ((), (1,)) and not _is_of_constants(x):
        return "an activation has several scales, and TensorRT takes one"
    return ""


def _is_of_constants(value: Value | None) -> bool:
    """Returns whether only constants decide a value."""
    node = None if value is None else value.producer()
    return initializer_tensor(value) is not None if node is None else all(map(_is_of_constants, node.inputs))


@legalizes("QuantizeLinear(_, _, _ | None)", targets=("tensorrt",))
def legalize_asymmetric_quantization(f: NodeBuilder, node: ir.Node) -> Result:
    """QuantizeLinear(x, scale, zero_point) → Cast(Clip(Round(x / scale) + zero_point)), where it is not symmetric.

    Legal because this is ONNX's definition of QuantizeLinear for 8-bit integers; both round half to even. TensorRT
    takes zero points of 0 and constant scales only. A pair with a DequantizeLinear is left to the row of that.
    """
    if not asymmetry(node) or is_read_by(node.outputs[0], "DequantizeLinear"):
        return None
    return legalize_quantization.function(f, node)


@legalizes("DequantizeLinear(q, scale, zero_point | None, block_size=block)", targets=("tensorrt",))
def legalize_asymmetric_dequantization(
    f: NodeBuilder, node: ir.Node, q: Value, scale: Value, zero_point: Value | None, block: int
) -> Result:
    """DequantizeLinear(q, scale, zero_point) → (Cast(q) - zero_point) * scale, where it is not symmetric.

    Legal because this is ONNX's definition; q of a QuantizeLinear stays a float. TensorRT takes zero points of 0 and
    constant scales only.
    """
    return legalize_dequantization.function(f, node, q, scale, zero_point, block) if asymmetry(node) else None


@legalizes("Cast(w, to=to)", targets=("tensorrt",), where={"w": _is_weight_of_8_bits})
def legalize_weight_casts(f: NodeBuilder, w: Value, to: int) -> Result:
    """Cast(w) → DequantizeLinear(w, 1.0), with a Cast of the result unless it is float32, for a constant of int8.

    Legal because float32 represents all integers of 8 bits. TensorRT takes such constants before a DequantizeLinear
    only.
    """
    wide = f.DequantizeLinear(w, f.constant(np.array(1.0, np.float32)))
    return wide if to == DataType.FLOAT else f.Cast(wide, to=to)


def _dequantized(f: NodeBuilder, number: Value, node: ir.Node, scale: Value, zero_point: Value | None) -> Value:
    """Returns (number - zero_point) * scale."""
    if zero_point is not None:
        number = f.Sub(number, _shift(f, node, zero_point, scale))
    return f.Mul(number, _aligned(f, node, scale))


def _reason_against(f: NodeBuilder, quantize: ir.Node) -> str:
    """Returns why a QuantizeLinear has no form as arithmetic; empty if it has one."""
    x, scale = quantize.inputs[:2]
    if quantize.outputs[0].dtype not in (DataType.INT8, DataType.UINT8) or attribute(quantize, "block_size", 0):
        return "the result has not 8 bits, or there is a scale for each block"
    if x is None or scale is None or with_shape(f, x).shape is None or x.dtype != scale.dtype:
        return "the rank is unknown, or the scale has another dtype"
    return ""


def _quantized(f: NodeBuilder, quantize: ir.Node) -> Value:
    """Returns the result of a QuantizeLinear as a float: Clip(Round(x / scale) + zero_point)."""
    x, scale = (operand for operand in quantize.inputs[:2] if operand is not None)
    quotient, zero_point = f.Div(x, _aligned(f, quantize, scale)), [*quantize.inputs, None][2]
    rounded = f.Round(quotient) if f.editor.opset > 10 else round_half_to_even(f, quotient)
    if zero_point is not None:
        rounded = f.Add(rounded, _shift(f, quantize, zero_point, scale))
    limits = np.iinfo(np.uint8 if quantize.outputs[0].dtype == DataType.UINT8 else np.int8)
    return f.Clip(rounded, float(limits.min), float(limits.max))


def _shift(f: NodeBuilder, node: ir.Node, zero_point: Value, scale: Value) -> Value:
    """Returns a zero point as floats of the scale's dtype.

    A constant is converted here: where two equal nodes read a Cast of the same constant, MNN loses a Relu that follows
    one of them.
    """
    array, dtype = constant_array(zero_point), scale.dtype or DataType.FLOAT
    if array is None:
        return _aligned(f, node, f.Cast(zero_point, to=dtype))
    return _aligned(f, node, f.constant(array.astype(dtype.numpy())))


def _aligned(f: NodeBuilder, node: ir.Node, value: Value) -> Value:
    """Returns one value, or the values for each index of an axis, with one more axis for each later axis of x.

    The rank of the value need not be known: a Reshape takes both forms.
    """
    rank = 0 if dims(value) in ((), (1,)) else rank_of(node.inputs[0])
    later = rank - 1 - attribute(node, "axis", 1) % rank if rank else 0
    return f.Reshape(value, [-1, *[1] * later]) if later else value
