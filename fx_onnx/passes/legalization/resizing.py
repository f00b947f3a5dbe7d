"""Legalization of Resize."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx_ir import Value

from fx_onnx.onnx_model.dtypes import is_float
from fx_onnx.passes.builder import NodeBuilder, undo_float32_rounding
from fx_onnx.passes.legalization.forms import (
    swapped_with_last,
)
from fx_onnx.passes.legalization.table import WIDE, legalizes
from fx_onnx.passes.matchers import constant_array, dims
from fx_onnx.passes.rules import Result

__all__ = ["PLACES", "ROUNDED", "Array", "Places", "aligned", "by_matrices", "cubic", "resize_weights", "times_matrix"]

Array = npt.NDArray[np.floating[Any]]
# Maps positions of the result to positions of the input, given the sizes of input and result and the scale.
Places = Callable[[Array, int, int, float], Array]


# ---------------------------------------------------------------- matrices


@legalizes("Resize(x, ...)", lacks=WIDE)
def resize_by_matrices(f: NodeBuilder, x: Value) -> Result:
    """Resize(x) → x times a matrix for each axis, or a Gather for the nearest elements.

    Legal because the elements of the result are weighted sums of those along each axis.
    """
    result = by_matrices(f, x)
    return "some size is not static, or its coordinates have another form" if result is None else result


def by_matrices(f: NodeBuilder, x: Value) -> Value | None:
    """Resizes axis by axis: a Gather for mode nearest, else a product with a matrix (in, out).

    Returns None if a size is unknown, the coordinate transformation mode is not in ``PLACES``, or integers are to be
    interpolated. Source: the formulas of "coordinate_transformation_mode" in ONNX Resize.
    """
    if f.attribute("mode", "nearest") != "nearest" and not is_float(f.dtype):
        return None
    sizes, outs, scales = dims(x), dims(f.node.outputs[0]), constant_array(f.node.inputs[2])
    scales = scales if scales is not None and scales.size else None  # no elements: below opset 13, absent
    if sizes is None or outs is None or f.attribute("coordinate_transformation_mode", "half_pixel") not in PLACES:
        return None
    axes = f.attribute("axes", list(range(len(sizes))))
    for at, axis in enumerate(axes):
        size, out = sizes[axis], outs[axis]
        if not isinstance(size, int) or not isinstance(out, int) or size == 0:
            return None
        scale = out / size
        if scales is not None and np.float32(scale) != scales[at]:
            scale = undo_float32_rounding(float(scales[at]))
        if size != out or scale != 1:
            x = times_matrix(f, x, axis, size, out, scale)
    return x


def times_matrix(f: NodeBuilder, x: Value, axis: int, size: int, out: int, scale: float) -> Value:
    """Resizes one axis."""
    places = PLACES[f.attribute("coordinate_transformation_mode", "half_pixel")](
        np.arange(float(out)), size, out, scale
    )
    if f.attribute("mode", "nearest") == "nearest":
        return f.Gather(x, np.clip(ROUNDED[f.attribute("nearest_mode")](places), 0, size - 1).astype(int), axis=axis)
    weights, rank = resize_weights(f, places, size, scale).astype(f.dtype.numpy()), len(dims(f.node.outputs[0]) or ())
    if axis == rank - 1:
        return f.MatMul(x, weights)
    swap = swapped_with_last(rank, axis)
    return f.Transpose(f.MatMul(f.Transpose(x, perm=swap), weights), perm=swap)


def resize_weights(f: NodeBuilder, places: Array, size: int, scale: float) -> Array:
    """Returns the matrix (in, out) of interpolation weights. Elements beyond the ends repeat those at the ends."""
    linear, a = f.attribute("mode") == "linear", f.attribute("cubic_coeff_a", -0.75)
    stretch = min(scale, 1.0) if f.attribute("antialias", 0) else 1.0
    reach = (1 if linear else 2) / stretch
    taps = np.floor(places - reach)[:, None] + np.arange(1, int(np.ceil(2 * reach)) + 2)
    distance = np.abs(taps - places[:, None]) * stretch
    part = np.maximum(1 - distance, 0) if linear else cubic(distance, a)
    if f.attribute("exclude_outside", 0):
        part = np.where((taps < 0) | (taps >= size), 0, part)
    if f.attribute("exclude_outside", 0) or stretch != 1:  # otherwise the weights sum to 1 already
        part = part / part.sum(1, keepdims=True)
    weights = np.zeros((size, len(places)))
    np.add.at(weights, (np.clip(taps, 0, size - 1).astype(int), np.arange(len(places))[:, None]), part)
    return weights


def cubic(distance: Array, a: float) -> Array:
    """Evaluates the kernel of cubic convolution (Keys, IEEE Transactions on ASSP 29, 1981)."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def aligned(index: Array, size: int, out: int, scale: float) -> Array:
    """Returns the places of the elements of the result in the input, with aligned corners."""
    return index * ((size - 1) / max(out - 1, 1))


PLACES: dict[str, Places] = {
    "half_pixel": lambda index, size, out, scale: (index + 0.5) / scale - 0.5,
    "pytorch_half_pixel": lambda index, size, out, scale: (index + 0.5) / scale - 0.5 if out > 1 else 0 * index,
    "asymmetric": lambda index, size, out, scale: index / scale,
    "align_corners": aligned,
}
ROUNDED: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor,
    "round_prefer_ceil": lambda places: np.floor(places + 0.5),
}
