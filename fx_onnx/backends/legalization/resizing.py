"""Legalization of Resize."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.onnx_model.dtypes import is_float
from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.forms import (
    counted,
    known_rank,
    number_axis,
    rank_of,
    scalar_size,
    size_of,
)
from fx_onnx.passes.legalization.resizing import (
    PLACES,
    by_matrices,
    resize_by_matrices,
)
from fx_onnx.passes.legalization.table import legalizes
from fx_onnx.passes.matchers import constant_array, dims, initializer_tensor
from fx_onnx.passes.rules import DeclinedError, Result

__all__ = ["legalize_antialiasing", "legalize_computed_resizes", "legalize_cubic_resize"]
_COORDINATES = {
    "nearest": ("asymmetric",),
    "linear": ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"),
}


# ---------------------------------------------------------------- older opsets


@legalizes("Resize(x, _ | None, scales | None, sizes | None)", until=17)
def resize_all_axes(f: NodeBuilder, node: ir.Node, x: Value, scales: Value | None, sizes: Value | None) -> Result:
    """Resize<axes>(x, scales or sizes) → Resize(x, scales or sizes of all axes).

    Legal because the scale of an axis that is not listed is 1. With antialiasing, it becomes products with matrices,
    which needs static sizes.
    """
    if f.attribute("antialias", 0):
        result = by_matrices(f, x)
        return "it resizes integers with antialiasing, or some size is not static" if result is None else result
    if f.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        return "it keeps the aspect ratio"
    if axes := f.attribute("axes"):
        rank = known_rank(f)
        places = {axis % rank: index for index, axis in enumerate(axes)}
        if scales is not None:
            one = f.constant(np.ones(1, np.float32))
            scales = _all_axes(f, scales, [places.get(axis, one) for axis in range(rank)])
        if sizes is not None:
            sizes = _all_axes(
                f, sizes, [places[axis] if axis in places else size_of(f, x, axis) for axis in range(rank)]
            )
    newer = ("axes", "keep_aspect_ratio_policy", "antialias")
    kept = {name: attr for name, attr in node.attributes.items() if name not in newer}
    return f.Resize(x, None, scales, *([] if sizes is None else [sizes]), **kept)


def _all_axes(f: NodeBuilder, values: Value, parts: Sequence[int | Value]) -> Value:
    """Concatenates elements of ``values``, given by position, and other values of one element."""
    known = constant_array(values)
    arrays = [constant_array(p) if isinstance(p, Value) else None if known is None else known[p : p + 1] for p in parts]
    if (constants := [array for array in arrays if array is not None]) and len(constants) == len(parts):
        return f.constant(np.concatenate(constants))
    return f.Concat(*(f.Slice(values, [p], [p + 1], [0]) if isinstance(p, int) else p for p in parts), axis=0)


@legalizes("Resize(x, roi | None, scales | None, sizes | None)", until=12)
def resize_with_empty_inputs(
    f: NodeBuilder, node: ir.Node, x: Value, roi: Value | None, scales: Value | None, sizes: Value | None
) -> Result:
    """Resize(x, , scales) → Resize(x, [], scales), Resize(x, , , sizes) → Resize(x, [], [], sizes).

    Legal because opset 12 requires empty tensors where opset 13 allows absent inputs.
    """
    empty = f.constant(np.zeros(0, np.float32))
    return f.Resize(x, roi or empty, scales or empty, *([] if sizes is None else [sizes]), **dict(node.attributes))


@legalizes("Resize(x, _, scales, sizes | None)", until=10)
def resize_by_gathers(f: NodeBuilder, x: Value, scales: Value, sizes: Value | None) -> Result:
    """Resize(x, , scales or sizes) → Resize(x, scales), or for each axis Gather, or a sum of two Gathers with weights.

    Legal because these are the formulas of Resize. Opset 10 has only nearest elements without a transformation of
    coordinates and constant scales. With static sizes the weights are a matrix.
    """
    factors = constant_array(scales)
    factors = factors if factors is not None and factors.size else None
    mode, transformation = f.attribute("mode", "nearest"), f.attribute("coordinate_transformation_mode", "half_pixel")
    is_plain = mode == "nearest" and transformation == "asymmetric" and f.attribute("nearest_mode") == "floor"
    if is_plain and factors is not None and all(float(factor).is_integer() for factor in factors):
        return f.Resize(x, scales, mode=mode)
    if mode != "nearest" and not is_float(f.dtype):
        return "it interpolates integers"
    if (result := by_matrices(f, x)) is not None:
        return result
    if mode == "cubic" or transformation not in PLACES:
        return f"its mode is {mode} with {transformation}, and its sizes are not static"
    result = x
    for axis in range(rank_of(x)):
        if factors is None or factors[axis] != 1:
            result = _resized(f, x, result, axis, sizes, None if factors is None else float(factors[axis]))
    return result


def _resized(f: NodeBuilder, image: Value, x: Value, axis: int, sizes: Value | None, factor: float | None) -> Value:
    """Resizes one axis of x to an element of ``sizes``, or by a constant factor. ``image`` has the old size."""
    before, after = (dims(value) for value in (image, f.node.outputs[0]))
    if factor is None and before is not None and after is not None and before[axis] == after[axis]:
        return x
    length = f.Cast(scalar_size(f, image, axis), to=DataType.FLOAT)
    if factor is not None:
        scale = f.constant(factor, DataType.FLOAT)
        new = f.Floor(f.Mul(length, scale))
    elif sizes is not None:
        new = f.Cast(f.Squeeze(f.Gather(sizes, [axis], axis=0), [0]), to=DataType.FLOAT)
        scale = f.Div(new, length)
    else:
        raise DeclinedError("its scales are computed at run time")
    number = f.Cast(counted(f, f.Cast(new, to=DataType.INT64)), to=DataType.FLOAT)
    places = _places(f, number, length, new, scale)
    end = f.Sub(length, 1.0)

    def gathered(positions: Value) -> Value:
        return f.Gather(x, f.Cast(positions, to=DataType.INT64), axis=axis)

    if f.attribute("mode", "nearest") == "nearest":
        is_floor = f.attribute("nearest_mode", "round_prefer_floor") == "floor"
        if not is_floor and f.attribute("nearest_mode") != "round_prefer_ceil":
            raise DeclinedError("of two elements that are equally near, it takes the first one")
        places = f.Floor(places if is_floor else f.Add(places, 0.5))
        return gathered(f.Min(f.Max(places, 0.0), end))
    places = f.Min(f.Max(places, 0.0), end)
    low = f.Floor(places)
    weight = number_axis(f, f.Cast(f.Sub(places, low), to=f.dtype), rank_of(image) - 1 - axis)
    first, second = gathered(low), gathered(f.Min(f.Add(low, 1.0), end))
    return f.Add(f.Mul(first, f.Sub(1.0, weight)), f.Mul(second, weight))


def _places(f: NodeBuilder, number: Value, length: Value, new: Value, scale: Value) -> Value:
    """Returns the positions in x of the elements of the result, in float32 as ONNX Runtime computes them."""
    transformation = f.attribute("coordinate_transformation_mode", "half_pixel")
    if transformation == "asymmetric":
        return f.Div(number, scale)
    if transformation == "align_corners":
        return f.Div(f.Mul(number, f.Sub(length, 1.0)), f.Max(f.Sub(new, 1.0), 1.0))
    places = f.Sub(f.Div(f.Add(number, 0.5), scale), 0.5)
    if transformation == "half_pixel":
        return places
    return f.Mul(places, f.Cast(f.Greater(new, 1.0), to=DataType.FLOAT))  # an axis of one element takes the first one


@legalizes("Resize(x, scales)", until=9)
def resize_by_upsample(f: NodeBuilder, node: ir.Node, x: Value, scales: Value) -> Result:
    """Resize(x, scales) → Upsample(x, scales).

    Legal because Resize of opset 10 is Upsample for scales of at least 1.
    """
    factors = constant_array(scales)
    if factors is None or (factors < 1).any():
        return "its scales are not constants of at least 1"
    return f.Upsample(x, scales, **dict(node.attributes))


# ---------------------------------------------------------------- runtimes


@legalizes("Resize(x, ..., antialias=1)", targets=("tensorrt",))
def legalize_antialiasing(f: NodeBuilder, x: Value) -> Result:
    """Resize(x, antialias) → x times a matrix for each axis.

    Legal because the elements of the result are weighted sums of those along each axis. TensorRT has no antialias.
    """
    return resize_by_matrices.function(f, x)


@legalizes(
    "Resize(x, _ | None, scales, ..., mode='cubic', coordinate_transformation_mode=coordinates)",
    since=18,
    targets=("mnn",),
)
def legalize_cubic_resize(f: NodeBuilder, node: ir.Node, x: Value, scales: Value, coordinates: str) -> Result:
    """Resize(x, n, cubic, half_pixel) → Slice(Resize(Pad(x, 2), 2n, cubic, asymmetric), 3n + 1, -5n, step 2).

    Legal where n is an integer: pixel i reads at (i + 1/2) / n - 1/2, which is where pixel 2i + 1 - n of the other
    Resize reads. Two pixels at each edge are repeated because a cubic kernel reads four. MNN (measured with 3.6.1)
    reads the wrong pixels with the coordinates half_pixel, and the right ones with asymmetric or align_corners.
    """
    sizes, tensor = dims(x), initializer_tensor(scales)
    if coordinates not in ("half_pixel", "pytorch_half_pixel"):
        return None
    if sizes is None or len(sizes) != 4 or tensor is None or tensor.size != 4:
        return "the scales are computed, or x has not four axes"
    *outer, rows, columns = tensor.numpy().tolist()
    if outer != [1, 1] or rows != columns or rows < 2 or rows != int(rows):
        return f"the scales are {tensor.numpy().tolist()}"
    if f.attribute("antialias", 0) or f.attribute("exclude_outside", 0):
        return "antialias or exclude_outside is set"
    n, padded = int(rows), f.Pad(x, [0, 0, 2, 2, 0, 0, 2, 2], mode="edge")
    options = {**node.attributes, "coordinate_transformation_mode": "asymmetric"}
    resized = f.Resize(padded, None, np.array([1, 1, 2 * n, 2 * n], np.float32), **options)
    return f.Slice(resized, [3 * n + 1] * 2, [-5 * n] * 2, [2, 3], [2, 2])


@legalizes(
    "Resize(x, _ | None, _ | None, sizes, mode=mode, coordinate_transformation_mode=coordinates)",
    since=13,
    targets=("tract",),
    where={"sizes": lambda sizes: initializer_tensor(sizes) is None},
)
def legalize_computed_resizes(
    f: NodeBuilder, node: ir.Node, x: Value, sizes: Value, mode: str, coordinates: str
) -> Result:
    """Resize(x, sizes) → Gather(x, ⌊i · size / new size⌋) for each axis, or a mean of two Gathers if it is linear.

    Legal because these are the elements that ONNX defines, nearest ones by floor. Constant sizes stay. tract (measured
    with 0.23.9) fails in a run, because it needs the sizes as numbers: every U-Net with dynamic sizes.
    """
    before, after = dims(x), dims(node.outputs[0])
    if coordinates not in _COORDINATES.get(mode, ()) or f.attribute("axes") or f.attribute("antialias", 0):
        return f"the mode is {mode} with the coordinates {coordinates}"
    if mode == "nearest" and f.attribute("nearest_mode", "round_prefer_floor") != "floor":
        return "the nearest element is rounded"
    if x.dtype != DataType.FLOAT or before is None or after is None:
        return "the dtype is not float32, or the rank is unknown"
    result = x
    for axis in [axis for axis in range(len(before)) if before[axis] != after[axis]]:
        one_axis = _Axis(f, result, sizes, axis, len(before))
        result = one_axis.nearest(result) if mode == "nearest" else one_axis.linear(result, coordinates)
    return f.Identity(x) if result is x else result


class _Axis:
    """One axis of a Resize: its size before and after, as vectors of one number, and the new positions."""

    def __init__(self, f: NodeBuilder, x: Value, sizes: Value, axis: int, rank: int) -> None:
        self.f, self.axis, self.rank = f, axis, rank
        new, old = f.Slice(sizes, [axis], [axis + 1]), f.Shape(x, start=axis, end=axis + 1)
        # tract loses the length of a Range.
        every = f.CumSum(f.Expand(np.array(1), new), np.array(0), exclusive=1)
        self.old_size, self.new_size, self.positions = (f.Cast(value, to=DataType.FLOAT) for value in (old, new, every))

    def _gathered(self, x: Value, positions: Value) -> Value:
        """Returns the elements at positions that are whole numbers, the last one where they are too large."""
        last = self.f.Sub(self.old_size, 1.0)
        return self.f.Gather(x, self.f.Cast(self.f.Min(positions, last), to=DataType.INT64), axis=self.axis)

    def nearest(self, x: Value) -> Value:
        """Returns the elements whose positions are rounded down, with PyTorch's order of operations."""
        f = self.f
        return self._gathered(x, f.Floor(f.Mul(self.positions, f.Div(self.old_size, self.new_size))))

    def linear(self, x: Value, coordinates: str) -> Value:
        """Returns the means of two neighbours, weighted by the distance."""
        f = self.f
        if coordinates == "align_corners":
            steps = f.Max(f.Sub(self.new_size, 1.0), 1.0)
            places = f.Mul(self.positions, f.Div(f.Sub(self.old_size, 1.0), steps))
        else:
            shift = 0.0 if coordinates == "asymmetric" else 0.5
            ratio = f.Div(self.old_size, self.new_size)
            places = f.Max(f.Sub(f.Mul(f.Add(self.positions, shift), ratio), shift), 0.0)
        low = f.Floor(places)
        first, second = self._gathered(x, low), self._gathered(x, f.Add(low, 1.0))
        share = number_axis(f, f.Sub(places, low), self.rank - self.axis - 1)
        return f.Add(first, f.Mul(f.Sub(second, first), share))
