"""Resize to a computed size as Gathers, for a runtime that takes constant sizes only.

tract (measured with 0.23.9) fails in a run, because it needs the sizes as numbers: every U-Net with dynamic sizes.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, dims, initializer_tensor
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeComputedResizes"]

_COORDINATES = {
    "nearest": ("asymmetric",),
    "linear": ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"),
}


class LegalizeComputedResizes(Rewrite):
    """Resize(x, sizes) → Gather(x, ⌊i · size / new size⌋) for each axis, or a mean of two Gathers if it is linear.

    Legal because these are the elements that ONNX defines, nearest ones by floor. Constant sizes stay. The pass belongs
    to the target tract.
    """

    name = "legalize_computed_resizes"
    op_types = ("Resize",)
    since = 13

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one Resize."""
        x, sizes = node.inputs[0], node.inputs[3] if len(node.inputs) > 3 else None
        before, after = dims(x), dims(node.outputs[0])
        if x is None or sizes is None or initializer_tensor(sizes) is not None:
            return False
        mode = attribute(node, "mode", "nearest")
        coordinates = attribute(node, "coordinate_transformation_mode", "half_pixel")
        if coordinates not in _COORDINATES.get(mode, ()) or attribute(node, "axes") or attribute(node, "antialias", 0):
            return self.declines(node, "the mode is %s with the coordinates %s", mode, coordinates)
        if mode == "nearest" and attribute(node, "nearest_mode", "round_prefer_floor") != "floor":
            return self.declines(node, "the nearest element is rounded")
        if x.dtype != DataType.FLOAT or before is None or after is None:
            return self.declines(node, "the dtype is not float32, or the rank is unknown")
        f = NodeBuilder(node, editor, DataType.FLOAT)
        axes = [axis for axis in range(len(before)) if before[axis] != after[axis]]
        for axis in axes:
            place = _Axis(f, x, sizes, axis, len(before))
            x = place.nearest(x) if mode == "nearest" else place.linear(x, coordinates)
        editor.replace(node, "Identity", [x], {})
        return True


class _Axis:
    """One axis of a Resize: its size before and after, as vectors of one number, and the new positions."""

    def __init__(self, f: NodeBuilder, x: Value, sizes: Value, axis: int, rank: int) -> None:
        self.f, self.axis, self.rank = f, axis, rank
        new, old = f.Slice(sizes, f.constant([axis]), f.constant([axis + 1])), f.Shape(x, start=axis, end=axis + 1)
        # tract loses the length of a Range.
        every = f.CumSum(f.Expand(f.constant(np.array(1)), new), f.constant(np.array(0)), exclusive=1)
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
        share = f.Unsqueeze(share, f.constant(beside)) if beside else share
        return f.Add(first, f.Mul(f.Sub(second, first), share))
