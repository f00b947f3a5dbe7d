"""GridSample for opset 15, which has no such operator."""

from __future__ import annotations

import numpy as np
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.opsets.step import UnsupportedNodeError, known_rank, size_of

__all__ = ["grid_sample"]


def grid_sample(f: NodeBuilder) -> None:
    """GridSample(x, grid) → a sum of four elements of x with weights, or the nearest element, by GatherElements.

    Legal because these are the formulas of GridSample for the modes bilinear and nearest on images. The mode bicubic
    and volumes are refused.
    """
    node = f.node
    x, grid = node.inputs
    mode = f.attribute("mode", "bilinear")
    if x is None or grid is None or known_rank(f) != 4 or mode not in ("bilinear", "nearest"):
        raise UnsupportedNodeError(f"its mode is {mode}, or it samples no image")
    columns, rows = (_positions(f, grid, x, place, axis) for place, axis in ((0, 3), (1, 2)))
    if mode == "nearest":
        result = _elements(f, x, f.Round(rows), f.Round(columns))
    else:
        result = _interpolated(f, x, rows, columns)
    sizes = f.Concat(*(size_of(f, v, a) for v, a in ((x, 0), (x, 1), (grid, 1), (grid, 2))), axis=0, sizes=(4,))
    # The batch, the channels and the sizes of the grid; a size of 0 gives no element.
    f.editor.replace(node, "Reshape", [result, sizes], {"allowzero": 1})


def _positions(f: NodeBuilder, grid: Value, x: Value, place: int, axis: int) -> Value:
    """Returns the positions along one axis of the image, (batch, 1, points), from coordinates between -1 and 1."""
    points = f.Mul(size_of(f, grid, 1), size_of(f, grid, 2), sizes=(1,))
    sizes = f.Concat(size_of(f, grid, 0), f.constant([1]), points, axis=0, sizes=(3,))
    coordinates = f.Reshape(f.Gather(grid, np.array(place), axis=3), sizes, allowzero=1)
    size = f.Cast(size_of(f, x, axis), to=int(f.dtype))
    half = f.Mul(f.Add(coordinates, 1.0), 0.5)
    aligned = f.attribute("align_corners", 0)
    places = f.Mul(half, f.Sub(size, 1.0)) if aligned else f.Sub(f.Mul(half, size), 0.5)
    padding = f.attribute("padding_mode", "zeros")
    if padding == "reflection":
        places = _reflected(f, places, size, 0.0 if aligned else 0.5)
    if padding != "zeros":
        places = _clipped(f, places, size)
    result: Value = places
    return result


def _reflected(f: NodeBuilder, places: Value, size: Value, margin: float) -> Value:
    """Reflects positions at -margin and size - 1 + margin until they are between these."""
    low = -margin
    span = f.Sub(size, 1.0 - 2 * margin)
    span = f.Max(span, np.finfo(f.dtype.numpy()).tiny.item()) if not margin else span  # an image of one element
    distance = f.Abs(f.Sub(places, low))
    turns = f.Floor(f.Div(distance, span))
    rest = f.Sub(distance, f.Mul(turns, span))
    is_odd = f.Greater(f.Sub(turns, f.Mul(f.Floor(f.Mul(turns, 0.5)), 2.0)), 0.5)
    result: Value = f.Add(f.Where(is_odd, f.Sub(span, rest), rest), low)
    return result


def _clipped(f: NodeBuilder, places: Value, size: Value) -> Value:
    result: Value = f.Min(f.Max(places, 0.0), f.Sub(size, 1.0))
    return result


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
    result: Value = f.Add(f.Add(terms[0], terms[1]), f.Add(terms[2], terms[3]))
    return result


def _elements(f: NodeBuilder, x: Value, rows: Value, columns: Value) -> Value:
    """Returns the elements of x at whole positions, (batch, channels, points); zero beyond the edges."""
    height, width = (f.Cast(size_of(f, x, axis), to=int(f.dtype)) for axis in (2, 3))
    row, column = _clipped(f, rows, height), _clipped(f, columns, width)
    place = f.Add(f.Mul(_integers(f, row), size_of(f, x, 3)), _integers(f, column))
    area = f.Mul(size_of(f, x, 2), size_of(f, x, 3), sizes=(1,))
    sizes = f.Concat(size_of(f, x, 0), size_of(f, x, 1), area, axis=0, sizes=(3,))
    flat = f.Reshape(x, sizes, allowzero=1, sizes=(None,) * 3)
    channels = f.Concat(f.constant([1]), size_of(f, x, 1), f.constant([1]), axis=0, sizes=(3,))
    found = f.GatherElements(flat, f.Expand(place, channels, sizes=(None,) * 3), axis=2)
    if f.attribute("padding_mode", "zeros") != "zeros":
        return found
    is_inside = f.And(f.Equal(row, rows), f.Equal(column, columns))
    zero = f.constant(np.zeros((), f.dtype.numpy()))
    result: Value = f.Where(is_inside, found, zero)
    return result


def _integers(f: NodeBuilder, places: Value) -> Value:
    result: Value = f.Cast(places, to=int(DataType.INT64))
    return result
