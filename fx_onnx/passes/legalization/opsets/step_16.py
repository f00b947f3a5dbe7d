"""Opset 17 → 16."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.opsets.step import (
    OpsetStep,
    UnsupportedNodeError,
    known_rank,
    size_of,
)
from fx_onnx.passes.matchers import dims

__all__ = ["STEP_16"]

MAX_MATRIX_LENGTH = 4096
"""The largest length of a DFT that becomes a product with a matrix, which has twice the square of this length."""


def layer_normalization(f: NodeBuilder) -> None:
    """LayerNormalization(x, scale, bias) → (x - mean) / Sqrt(variance + epsilon) * scale + bias.

    Legal because this is the definition of LayerNormalization. The mean and the variance are computed in the type that
    ``stash_type`` names, or in float64 if x has that type. ONNX Runtime fuses this form again.
    """
    node = f.node
    x, scale, bias = (*node.inputs, None)[:3]
    rank = known_rank(f)
    first = f.attribute("axis", -1) % rank
    axes = list(range(first - rank, 0))
    dtype = f.dtype
    stash = DataType.DOUBLE if dtype is DataType.DOUBLE else DataType(f.attribute("stash_type", 1))
    sizes = dims(x)
    reduced = None if sizes is None else (*sizes[:first], *[1] * len(axes))
    wide = x if stash is dtype else f.Cast(x, to=int(stash), sizes=sizes)
    mean = f.ReduceMean(wide, axes=axes, keepdims=1, sizes=reduced)
    centered = f.Sub(wide, mean, sizes=sizes)
    variance = f.ReduceMean(f.Pow(centered, f.constant(2.0, stash), sizes=sizes), axes=axes, keepdims=1, sizes=reduced)
    deviation = f.Sqrt(f.Add(variance, float(f.attribute("epsilon", 1e-5)), sizes=reduced), sizes=reduced)
    result = f.Div(centered, deviation, sizes=sizes)
    if stash is not dtype:
        result = f.Cast(result, to=int(dtype), sizes=sizes)
    if len(node.outputs) > 1:
        f.editor.replace_result(node.outputs[1], mean)
    if len(node.outputs) > 2:
        f.editor.replace_result(node.outputs[2], f.Reciprocal(deviation))
    node.resize_outputs(1)
    if bias is None:
        f.editor.replace(node, "Mul", [result, scale], {})
    else:
        f.editor.replace(node, "Add", [f.Mul(result, scale, sizes=sizes), bias], {})


def dft(f: NodeBuilder) -> None:
    """DFT(x) → MatMul(x, matrix of the transform), a constant for a static length.

    Legal because a discrete Fourier transform is a product with the matrix of the roots of unity.
    """
    node = f.node
    x = node.inputs[0]
    sizes = dims(x)
    if x is None or sizes is None:
        raise UnsupportedNodeError("the rank of its input is not known")
    if len([each for each in node.inputs if each is not None]) > 1:
        raise UnsupportedNodeError("its length is an input")
    rank, parts = len(sizes), sizes[-1]
    axis = f.attribute("axis", 1) % rank
    length = sizes[axis]
    if not isinstance(parts, int) or (isinstance(length, int) and not 0 < length <= MAX_MATRIX_LENGTH):
        raise UnsupportedNodeError(f"the length of the transform is not at most {MAX_MATRIX_LENGTH}")
    others = [each for each in range(rank - 1) if each != axis]
    kept = [0] * len(others)
    if isinstance(length, int):
        count = length // 2 + 1 if f.attribute("onesided", 0) else length
        matrix: Value = f.constant(_matrix(f, length, count, parts).astype(f.dtype.numpy()))
        columns, results = f.constant([*kept, length * parts]), f.constant([*kept, count, 2])
    else:
        matrix, bins = _matrix_of_run(f, size_of(f, x, axis), parts)
        columns = f.Concat(f.constant(kept), f.Mul(size_of(f, x, axis), [parts]), axis=0)
        results = f.Concat(f.constant(kept), bins, f.constant([2]), axis=0)
    rows: Value = f.Transpose(x, perm=[*others, axis, rank - 1])
    rows = f.Reshape(rows, columns)
    product = f.MatMul(rows, matrix)
    pairs = f.Reshape(product, results)
    order = [*others, axis]
    f.editor.replace(node, "Transpose", [pairs], {"perm": [order.index(i) for i in range(rank - 1)] + [rank - 1]})


def _matrix(f: NodeBuilder, length: int, count: int, parts: int) -> npt.NDArray[np.float64]:
    """Returns the matrix of the transform, (length * parts, count * 2), of real and imaginary parts."""
    is_inverse = f.attribute("inverse", 0)
    steps = np.outer(np.arange(length), np.arange(count)) % length
    sine = np.sin(steps * (2 * np.pi / length)) * (1 if is_inverse else -1)
    cosine = np.cos(steps * (2 * np.pi / length))
    table = np.stack([np.stack([cosine, sine], -1), np.stack([-sine, cosine], -1)], 1)[:, :parts]
    return table.reshape(length * parts, count * 2) / (length if is_inverse else 1)


def _matrix_of_run(f: NodeBuilder, length: Value, parts: int) -> tuple[Value, Value]:
    """Returns the matrix for a dynamic length, computed in float64, and the number of results."""
    count = f.Add(f.Div(length, [2]), [1]) if f.attribute("onesided", 0) else length
    zero, one = (f.constant(number, DataType.INT64) for number in (0, 1))
    row, column = (f.Range(zero, f.Squeeze(size, [0]), one) for size in (length, count))
    steps = f.Mod(f.Mul(f.Unsqueeze(row, [1]), column), length)
    wide = f.Cast(length, to=int(DataType.DOUBLE))
    angle = f.Mul(f.Div(f.Cast(steps, to=int(DataType.DOUBLE)), wide), f.constant(2 * np.pi, DataType.DOUBLE))
    sine, cosine = f.Sin(angle), f.Cos(angle)
    if not f.attribute("inverse", 0):
        sine = f.Neg(sine)
    else:
        sine, cosine = f.Div(sine, wide), f.Div(cosine, wide)
    entries = [[cosine, sine], [f.Neg(sine), cosine]][:parts]
    table = f.Concat(
        *(f.Unsqueeze(f.Concat(*(f.Unsqueeze(e, [2]) for e in pair), axis=2), [1]) for pair in entries), axis=1
    )
    flat = f.Reshape(table, f.Concat(f.Mul(length, [parts]), f.Mul(count, [2]), axis=0))
    matrix: Value = f.Cast(flat, to=int(f.dtype))
    return matrix, count


def cosine_window(f: NodeBuilder) -> None:
    """HannWindow, HammingWindow, BlackmanWindow → sums of Cos.

    Legal because this is their definition in ONNX: Σ (-1)ᵏ aₖ Cos(2πkn / N) over n < size, with N = size for a periodic
    window and size - 1 for a symmetric one.
    """
    node = f.node
    size = f.Cast(node.inputs[0], to=int(DataType.FLOAT))
    steps = size if f.attribute("periodic", 1) else f.Sub(size, 1.0)
    terms = {
        "HannWindow": (0.5, 0.5),
        "HammingWindow": (25 / 46, 21 / 46),
        "BlackmanWindow": (0.42, 0.5, 0.08),
    }[node.op_type]
    angle = f.Div(f.Mul(f.Range(_number(f, 0.0), size, _number(f, 1.0)), 2 * np.pi), steps)
    window = f.Sub(_number(f, terms[0]), f.Mul(f.Cos(angle), terms[1]))
    if len(terms) > 2:
        window = f.Add(window, f.Mul(f.Cos(f.Mul(angle, 2.0)), terms[2]))
    f.editor.replace(node, "Cast", [window], {"to": f.attribute("output_datatype", 1)})


def _number(f: NodeBuilder, number: float) -> Value:
    return f.constant(number, DataType.FLOAT)


STEP_16 = OpsetStep(
    16,
    rewrites={
        "BlackmanWindow": cosine_window,
        "DFT": dft,
        "HammingWindow": cosine_window,
        "HannWindow": cosine_window,
        "LayerNormalization": layer_normalization,
    },
)
