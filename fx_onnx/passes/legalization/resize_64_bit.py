"""Resize by products with interpolation matrices, for float64, for which ONNX Runtime has no kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx_ir import Value

from fx_onnx.core.dtypes import is_float
from fx_onnx.passes.builder import NodeBuilder, undo_float32_rounding
from fx_onnx.passes.matchers import constant_array, dims

__all__ = ["resize"]

_Array = npt.NDArray[np.floating[Any]]
# Maps positions of the result to positions of the input, given the sizes of input and result and the scale.
_Places = Callable[[_Array, int, int, float], _Array]


def resize(f: NodeBuilder, x: Value) -> Value | None:
    """Expands Resize axis by axis: a Gather for mode nearest, else a product with a matrix (in, out).

    Returns None if a size is unknown, the coordinate transformation mode is not in ``_PLACES``, or integers are to be
    interpolated. Source: the formulas of "coordinate_transformation_mode" in ONNX Resize.
    """
    if f.attribute("mode", "nearest") != "nearest" and not is_float(f.dtype):
        return None
    sizes, outs, scales = dims(x), dims(f.node.outputs[0]), constant_array(f.node.inputs[2])
    scales = scales if scales is not None and scales.size else None  # no elements: below opset 13, absent
    if sizes is None or outs is None or f.attribute("coordinate_transformation_mode", "half_pixel") not in _PLACES:
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
            x = _resized(f, x, axis, size, out, scale)
    return f.Identity(x) if x is f.node.inputs[0] else x


def _resized(f: NodeBuilder, x: Value, axis: int, size: int, out: int, scale: float) -> Value:
    """Resizes one axis."""
    places = _PLACES[f.attribute("coordinate_transformation_mode", "half_pixel")](
        np.arange(float(out)), size, out, scale
    )
    if f.attribute("mode", "nearest") == "nearest":
        return f.Gather(x, np.clip(_ROUNDED[f.attribute("nearest_mode")](places), 0, size - 1).astype(int), axis=axis)
    weights = f.editor.constant(_weights(f, places, size, scale).astype(f.dtype.numpy()), f.node)
    rank = len(dims(f.node.outputs[0]) or ())
    if axis == rank - 1:
        return f.MatMul(x, weights)
    swap = [*range(axis), rank - 1, *range(axis + 1, rank - 1), axis]
    return f.Transpose(f.MatMul(f.Transpose(x, perm=swap), weights), perm=swap)


def _weights(f: NodeBuilder, places: _Array, size: int, scale: float) -> _Array:
    """Returns the matrix (in, out) of interpolation weights. Elements beyond the ends repeat those at the ends."""
    linear, a = f.attribute("mode") == "linear", f.attribute("cubic_coeff_a", -0.75)
    stretch = min(scale, 1.0) if f.attribute("antialias", 0) else 1.0
    reach = (1 if linear else 2) / stretch
    taps = np.floor(places - reach)[:, None] + np.arange(1, int(np.ceil(2 * reach)) + 2)
    distance = np.abs(taps - places[:, None]) * stretch
    part = np.maximum(1 - distance, 0) if linear else _cubic(distance, a)
    if f.attribute("exclude_outside", 0):
        part = np.where((taps < 0) | (taps >= size), 0, part)
    if f.attribute("exclude_outside", 0) or stretch != 1:  # otherwise the weights sum to 1 already
        part = part / part.sum(1, keepdims=True)
    weights = np.zeros((size, len(places)))
    np.add.at(weights, (np.clip(taps, 0, size - 1).astype(int), np.arange(len(places))[:, None]), part)
    return weights


def _cubic(distance: _Array, a: float) -> _Array:
    """Evaluates the kernel of cubic convolution (Keys, IEEE Transactions on ASSP 29, 1981)."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def _aligned(place: _Array, size: int, out: int, scale: float) -> _Array:
    return place * ((size - 1) / max(out - 1, 1))


_PLACES: dict[str, _Places] = {
    "half_pixel": lambda place, size, out, scale: (place + 0.5) / scale - 0.5,
    "pytorch_half_pixel": lambda place, size, out, scale: (place + 0.5) / scale - 0.5 if out > 1 else 0 * place,
    "asymmetric": lambda place, size, out, scale: place / scale,
    "align_corners": _aligned,
}
_ROUNDED: dict[str, Callable[[_Array], _Array]] = {
    "floor": np.floor,
    "round_prefer_ceil": lambda places: np.floor(places + 0.5),
}
