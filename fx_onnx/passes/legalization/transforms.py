"""Legalization of Fourier transforms and their windows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import size_of
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import dims
from fx_onnx.passes.rules import Result

__all__ = ["MAX_MATRIX_LENGTH"]

MAX_MATRIX_LENGTH = 4096
"""The largest length of a DFT that becomes a product with a matrix, which has twice the square of this length."""


@legalizes("DFT(x, length | None)", until=16)
def multiply_by_roots_of_unity(f: NodeBuilder, x: Value, length: Value | None) -> Result:
    """DFT(x) → MatMul(x, matrix of the transform), a constant for a static length.

    Legal because a discrete Fourier transform is a product with the matrix of the roots of unity.
    """
    if (sizes := dims(x)) is None or not sizes:
        return "the rank of its input is not known"
    if length is not None:
        return "its length is an input"
    rank, parts = len(sizes), sizes[-1]
    axis = f.attribute("axis", 1) % rank
    size = sizes[axis]
    if not isinstance(parts, int) or (isinstance(size, int) and not 0 < size <= MAX_MATRIX_LENGTH):
        return f"the length of the transform is not at most {MAX_MATRIX_LENGTH}"
    others = [each for each in range(rank - 1) if each != axis]
    kept = [0] * len(others)
    if isinstance(size, int):
        count = size // 2 + 1 if f.attribute("onesided", 0) else size
        matrix = f.constant(_matrix(f, size, count, parts).astype(f.dtype.numpy()))
        columns, results = f.constant([*kept, size * parts]), f.constant([*kept, count, 2])
    else:
        matrix, bins = _matrix_of_run(f, size_of(f, x, axis), parts)
        columns = f.Concat(kept, f.Mul(size_of(f, x, axis), [parts]), axis=0)
        results = f.Concat(kept, bins, [2], axis=0)
    rows = f.Reshape(f.Transpose(x, perm=[*others, axis, rank - 1]), columns)
    pairs = f.Reshape(f.MatMul(rows, matrix), results)
    order = [*others, axis]
    return f.Transpose(pairs, perm=[order.index(i) for i in range(rank - 1)] + [rank - 1])


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
    row, column = (f.Range(0, f.Squeeze(size, [0]), 1) for size in (length, count))
    steps = f.Mod(f.Mul(f.Unsqueeze(row, [1]), column), length)
    wide = f.Cast(length, to=DataType.DOUBLE)
    angle = f.Mul(f.Div(f.Cast(steps, to=DataType.DOUBLE), wide), 2 * np.pi)
    sine, cosine = f.Sin(angle), f.Cos(angle)
    if f.attribute("inverse", 0):
        sine, cosine = f.Div(sine, wide), f.Div(cosine, wide)
    else:
        sine = f.Neg(sine)
    entries = [[cosine, sine], [f.Neg(sine), cosine]][:parts]
    table = f.Concat(
        *(f.Unsqueeze(f.Concat(*(f.Unsqueeze(e, [2]) for e in pair), axis=2), [1]) for pair in entries), axis=1
    )
    flat = f.Reshape(table, f.Concat(f.Mul(length, [parts]), f.Mul(count, [2]), axis=0))
    return f.Cast(flat, to=f.dtype), count


_TERMS = {"HannWindow": (0.5, 0.5), "HammingWindow": (25 / 46, 21 / 46), "BlackmanWindow": (0.42, 0.5, 0.08)}


@legalizes("HannWindow(size)", "HammingWindow(size)", "BlackmanWindow(size)", until=16)
def sum_cosines(f: NodeBuilder, node: ir.Node, size: Value) -> Result:
    """HannWindow, HammingWindow, BlackmanWindow → sums of Cos.

    Legal because this is their definition in ONNX: Σ (-1)ᵏ aₖ Cos(2πkn / N) over n < size, with N = size for a periodic
    window and size - 1 for a symmetric one.
    """
    first, second, *third = _TERMS[node.op_type]
    length = f.Cast(size, to=DataType.FLOAT)
    steps = length if f.attribute("periodic", 1) else f.Sub(length, 1.0)
    angle = f.Div(f.Mul(f.Range(0.0, length, 1.0), 2 * np.pi), steps)
    window = f.Sub(first, f.Mul(f.Cos(angle), second))
    if third:
        window = f.Add(window, f.Mul(f.Cos(f.Mul(angle, 2.0)), *third))
    return f.Cast(window, to=f.attribute("output_datatype", 1))
