"""Legalization of sampling at positions, and of Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import (
    counted,
    known_rank,
    scalar_size,
    size_of,
    static_integers,
    with_shape,
)
from fx_onnx.passes.legalization.loops import Iteration, loop
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import dims
from fx_onnx.passes.rules import Result

__all__ = ["MAX_MATRIX_LENGTH", "legalize_transforms"]

# ---------------------------------------------------------------- GridSample


@legalizes("GridSample(x, grid)", until=15)
def gather_neighbours(f: NodeBuilder, x: Value, grid: Value) -> Result:
    """GridSample(x, grid) → a sum of four elements of x with weights, or the nearest element, by GatherElements.

    Legal because these are the formulas of GridSample for the modes bilinear and nearest on images. The mode bicubic
    and volumes are refused.
    """
    mode = f.attribute("mode", "bilinear")
    if known_rank(f) != 4 or mode not in ("bilinear", "nearest"):
        return f"its mode is {mode}, or it samples no image"
    columns, rows = (_positions(f, grid, x, index, axis) for index, axis in ((0, 3), (1, 2)))
    if mode == "nearest":
        result = _elements(f, x, f.Round(rows), f.Round(columns))
    else:
        result = _interpolated(f, x, rows, columns)
    # The batch, the channels and the sizes of the grid; a size of 0 gives no element.
    return f.Reshape(result, _shape(f, (x, 0), (x, 1), (grid, 1), (grid, 2)), allowzero=1)


def _shape(f: NodeBuilder, *sizes: tuple[Value, int] | Value | list[int]) -> Value:
    """Concatenates sizes, of which some are an axis of a value."""
    return f.Concat(*(size_of(f, *size) if isinstance(size, tuple) else size for size in sizes), axis=0)


def _positions(f: NodeBuilder, grid: Value, x: Value, index: int, axis: int) -> Value:
    """Returns the positions along one axis of the image, (batch, 1, points), from coordinates between -1 and 1."""
    sizes = _shape(f, (grid, 0), [1], f.Mul(size_of(f, grid, 1), size_of(f, grid, 2)))
    coordinates = f.Reshape(f.Gather(grid, np.array(index), axis=3), sizes, allowzero=1)
    size = f.Cast(size_of(f, x, axis), to=f.dtype)
    half = f.Mul(f.Add(coordinates, 1.0), 0.5)
    aligned = f.attribute("align_corners", 0)
    places = f.Mul(half, f.Sub(size, 1.0)) if aligned else f.Sub(f.Mul(half, size), 0.5)
    padding = f.attribute("padding_mode", "zeros")
    if padding == "reflection":
        places = _reflected(f, places, size, 0.0 if aligned else 0.5)
    return places if padding == "zeros" else _clipped(f, places, size)


def _reflected(f: NodeBuilder, places: Value, size: Value, margin: float) -> Value:
    """Reflects positions at -margin and size - 1 + margin until they are between these."""
    low = -margin
    span = f.Sub(size, 1.0 - 2 * margin)
    span = f.Max(span, np.finfo(f.dtype.numpy()).tiny.item()) if not margin else span  # an image of one element
    distance = f.Abs(f.Sub(places, low))
    turns = f.Floor(f.Div(distance, span))
    rest = f.Sub(distance, f.Mul(turns, span))
    is_odd = f.Greater(f.Sub(turns, f.Mul(f.Floor(f.Mul(turns, 0.5)), 2.0)), 0.5)
    return f.Add(f.Where(is_odd, f.Sub(span, rest), rest), low)


def _clipped(f: NodeBuilder, places: Value, size: Value) -> Value:
    return f.Min(f.Max(places, 0.0), f.Sub(size, 1.0))


def _interpolated(f: NodeBuilder, x: Value, rows: Value, columns: Value) -> Value:
    top, left = f.Floor(rows), f.Floor(columns)
    below, right = f.Sub(rows, top), f.Sub(columns, left)
    vertical = ((top, f.Sub(1.0, below)), (f.Add(top, 1.0), below))
    horizontal = ((left, f.Sub(1.0, right)), (f.Add(left, 1.0), right))
    terms = [
        f.Mul(_elements(f, x, row, column), f.Mul(row_weight, column_weight))
        for row, row_weight in vertical
        for column, column_weight in horizontal
    ]
    return f.Add(f.Add(terms[0], terms[1]), f.Add(terms[2], terms[3]))


def _elements(f: NodeBuilder, x: Value, rows: Value, columns: Value) -> Value:
    """Returns the elements of x at whole positions, (batch, channels, points); zero beyond the edges."""
    height, width = (f.Cast(size_of(f, x, axis), to=f.dtype) for axis in (2, 3))
    row, column = _clipped(f, rows, height), _clipped(f, columns, width)
    whole_row, whole_column = (f.Cast(index, to=DataType.INT64) for index in (row, column))
    position = f.Add(f.Mul(whole_row, size_of(f, x, 3)), whole_column)
    sizes = _shape(f, (x, 0), (x, 1), f.Mul(size_of(f, x, 2), size_of(f, x, 3)))
    flat = f.Reshape(x, sizes, allowzero=1)
    elements = f.GatherElements(flat, f.Expand(position, _shape(f, [1], (x, 1), [1])), axis=2)
    if f.attribute("padding_mode", "zeros") != "zeros":
        return elements
    is_inside = f.And(f.Equal(row, rows), f.Equal(column, columns))
    return f.Where(is_inside, elements, 0.0)


# ---------------------------------------------------------------- RoiAlign


@legalizes("RoiAlign(x, regions, batch)", until=15)
def pool_regions(f: NodeBuilder, node: ir.Node, x: Value, regions: Value, batch: Value) -> Result:
    """RoiAlign<coordinate_transformation_mode=half_pixel>(x, rois, batch) → Loop of rows * x[batch] * columns.

    Legal because the average of bilinear samples at a grid of rows and columns is a product with the average weights of
    the rows and of the columns. Opset 15 has the mode output_half_pixel only, whose nodes stay.
    """
    kept = {name: attr for name, attr in node.attributes.items() if name != "coordinate_transformation_mode"}
    if f.attribute("coordinate_transformation_mode", "half_pixel") == "output_half_pixel":
        return f.RoiAlign(x, regions, batch, **kept)
    if f.attribute("mode", "avg") != "avg":
        return "it takes the maximum of regions that are aligned to the centers of pixels"

    scale, ratio = float(f.attribute("spatial_scale", 1.0)), f.attribute("sampling_ratio", 0)
    height, width = (f.attribute(f"output_{name}", 1) for name in ("height", "width"))

    def one_region(b: NodeBuilder, number: Value, carried: Sequence[Value]) -> Iteration:
        image = b.Gather(x, b.Gather(batch, number, axis=0), axis=0)
        corners = b.Sub(b.Mul(b.Gather(regions, number, axis=0), scale), 0.5)
        rows, columns = (
            _weights(b, x, corners, index, axis, bins, ratio) for index, axis, bins in ((1, 2, height), (0, 3, width))
        )
        pooled = b.MatMul(b.MatMul(rows, image), b.Transpose(columns, perm=[1, 0]))
        return Iteration([b.Identity(*carried)], [pooled])

    unused = f.constant(0, DataType.INT64)
    pooled = loop(f, [unused], one_region, count=f.Squeeze(size_of(f, regions, 0), [0]))[1]
    # Without a region, the Loop returns no axes.
    return f.Reshape(pooled, _shape(f, (regions, 0), (x, 1), [height, width]), allowzero=1)


def _weights(f: NodeBuilder, x: Value, corners: Value, index: int, axis: int, bins: int, ratio: int) -> Value:
    """Returns the weights of the rows, or columns, of the image for each bin: (bins, size).

    The first corner's coordinate is at ``place``, the second corner's two places later. A ``ratio`` of 0 takes as many
    samples as a bin has rows.
    """
    start, end = (f.Gather(corners, np.array(corner), axis=0) for corner in (index, index + 2))
    length = f.Sub(end, start)
    bin_size = f.Div(length, float(bins))
    wanted = f.constant(float(ratio)) if ratio > 0 else f.Ceil(bin_size)
    samples = f.Max(wanted, 1.0)
    numbers = _numbers(f, f.Cast(samples, to=DataType.INT64))
    within = f.Div(f.Mul(f.Add(numbers, 0.5), bin_size), samples)
    first = f.Add(f.Mul(f.constant(np.arange(bins, dtype=f.dtype.numpy())[:, None]), bin_size), start)
    positions = f.Add(first, within)  # (bins, samples)
    length_of_x = scalar_size(f, x, axis)
    size = f.Cast(length_of_x, to=f.dtype)
    inside = f.And(f.GreaterOrEqual(positions, -1.0), f.LessOrEqual(positions, size))
    clipped = f.Min(f.Max(positions, 0.0), f.Sub(size, 1.0))
    distance = f.Abs(f.Sub(f.Unsqueeze(clipped, [2]), _numbers(f, length_of_x)))  # (bins, samples, size)
    near = f.Mul(f.Max(f.Sub(1.0, distance), 0.0), f.Unsqueeze(f.Cast(inside, to=f.dtype), [2]))
    has_samples = f.Cast(f.Greater(wanted, 0.0), to=f.dtype)
    return f.Mul(f.Div(f.ReduceSum(near, [1], keepdims=0), samples), has_samples)


def _numbers(f: NodeBuilder, count: Value) -> Value:
    """Returns 0, 1, … below ``count`` as floats."""
    return f.Cast(counted(f, count), to=f.dtype)


MAX_MATRIX_LENGTH = 4096
"""The largest length of a DFT that becomes a product with a matrix, which has twice the square of this length."""


@legalizes("DFT(x, length | None)", until=16)
def multiply_by_roots_of_unity(f: NodeBuilder, x: Value, length: Value | None) -> Result:
    """DFT(x) → MatMul(x, matrix of the transform), a constant for a static length.

    Legal because a discrete Fourier transform is a product with the matrix of the roots of unity.
    """
    return "its length is an input" if length is not None else _transformed(f, x, f.attribute("axis", 1))


@legalizes("DFT(x, length | None, axis | None)", targets=("tensorrt",))
def legalize_transforms(f: NodeBuilder, x: Value, length: Value | None, axis: Value | None) -> Result:
    """DFT(x) → MatMul(x, matrix of the transform), a constant for a static length.

    Legal because a discrete Fourier transform is a product with the matrix of the roots of unity. TensorRT has no DFT
    and no float64, so the angles of a dynamic length are computed in float32.
    """
    (number,) = static_integers(axis, "axis is") or [f.attribute("axis", 1 if f.editor.opset < 20 else -2)]
    return "its length is an input" if length is not None else _transformed(f, with_shape(f, x), number, DataType.FLOAT)


def _transformed(f: NodeBuilder, x: Value, axis: int, wide: DataType = DataType.DOUBLE) -> Result:
    """Returns the transform along an axis of x, whose last axis has the real and the imaginary part.

    Args:
        f: the builder.
        x: the signals.
        axis: the axis of the time.
        wide: the dtype of the angles of a dynamic length.
    """
    if (sizes := dims(x)) is None or not sizes:
        return "the rank of its input is not known"
    rank, parts = len(sizes), sizes[-1]
    axis %= rank
    size = sizes[axis]
    if not isinstance(parts, int) or (isinstance(size, int) and not 0 < size <= MAX_MATRIX_LENGTH):
        return f"the length of the transform is not at most {MAX_MATRIX_LENGTH}"
    others = [other for other in range(rank - 1) if other != axis]
    kept = [0] * len(others)
    if isinstance(size, int):
        count = size // 2 + 1 if f.attribute("onesided", 0) else size
        matrix = f.constant(_matrix(f, size, count, parts).astype(f.dtype.numpy()))
        columns, results = f.constant([*kept, size * parts]), f.constant([*kept, count, 2])
    else:
        matrix, bins = _matrix_of_run(f, size_of(f, x, axis), parts, wide)
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


def _matrix_of_run(f: NodeBuilder, length: Value, parts: int, dtype: DataType) -> tuple[Value, Value]:
    """Returns the matrix for a dynamic length, computed in a wide dtype, and the number of results."""
    count = f.Add(f.Div(length, [2]), [1]) if f.attribute("onesided", 0) else length
    row, column = (f.Range(0, f.Squeeze(size, [0]), 1) for size in (length, count))
    steps = f.Mod(f.Mul(f.Unsqueeze(row, [1]), column), length)
    wide = f.Cast(length, to=dtype)
    angle = f.Mul(f.Div(f.Cast(steps, to=dtype), wide), 2 * np.pi)
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
