"""Legalization of Resize."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import dims, initializer_tensor
from fx_onnx.passes.rules import Result, rule

__all__ = ["legalize_computed_resizes", "legalize_cubic_resize"]

_COORDINATES = {
    "nearest": ("asymmetric",),
    "linear": ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"),
}


@rule("Resize(x, _ | None, scales, ..., mode='cubic', coordinate_transformation_mode=coordinates)", since=18)
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


@rule(
    "Resize(x, _ | None, _ | None, sizes, mode=mode, coordinate_transformation_mode=coordinates)",
    since=13,
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
        place = _Axis(f, result, sizes, axis, len(before))
        result = place.nearest(result) if mode == "nearest" else place.linear(result, coordinates)
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
        beside = list(range(1, self.rank - self.axis))
        share = f.Sub(places, low)
        share = f.Unsqueeze(share, beside) if beside else share
        return f.Add(first, f.Mul(f.Sub(second, first), share))
