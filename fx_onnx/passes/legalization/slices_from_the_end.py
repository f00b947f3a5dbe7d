"""Slices that begin or end a number of elements before the end, for runtimes that add the size once and do not clip.

``x[-8:]`` of five elements is all of x. tract (measured with 0.23.9) fails with an invalid range, and MNN (3.6.1)
returns three elements, because both compute the start 5 - 8 and do not clip it.
"""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import DataType

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import constant_integers, dims
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeSlicesFromTheEnd"]

_UNBOUNDED = -(2**31)
"""Numbers up to here mean the begin of the axis."""


class LegalizeSlicesFromTheEnd(Rewrite):
    """Slice(x, -k, end) → Slice(x, Max(size - k, 0), end), and the same for the end, where the size is dynamic.

    Legal for steps of at least 1, because ONNX clips at the begin of the axis. A k of 1 stays: it fails for empty
    tensors only. The pass belongs to the targets mnn and tract.
    """

    name = "legalize_slices_from_the_end"
    op_types = ("Slice",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one Slice."""
        x, starts, ends, axes, steps = (*node.inputs, None, None)[:5]
        sizes = dims(x)
        bounds = [constant_integers(starts), constant_integers(ends)]
        if x is None or sizes is None:
            return False
        count = len(bounds[0] or bounds[1] or ())
        places = list(range(count)) if axes is None else constant_integers(axes)
        if places is None or any(step < 1 for step in (constant_integers(steps) or [1] if steps else [1])):
            return self.declines(node, "the axes are computed, or a step is negative or computed")
        places = [place % len(sizes) for place in places]
        f = NodeBuilder(node, editor, DataType.INT64)
        clipped = [_clipped(f, x, sizes, places, given) for given in bounds]
        if clipped == [None, None]:
            return False
        editor.replace(node, "Slice", [x, clipped[0] or starts, clipped[1] or ends, *node.inputs[3:]], {})
        return True


def _clipped(
    f: NodeBuilder, x: ir.Value, sizes: tuple[int | str, ...], axes: list[int], bounds: list[int] | None
) -> ir.Value | None:
    """Returns the starts or ends, counted from the begin; None if none of them can be before the begin."""
    if bounds is None:
        return None
    parts: list[ir.Value] = []
    changed = False
    for axis, bound in zip(axes, bounds, strict=True):
        size = sizes[axis]
        is_before = _UNBOUNDED < bound < -1 and (isinstance(size, str) or size + bound < 0)
        changed |= is_before
        if is_before and isinstance(size, str):
            length = f.Shape(x, start=axis, end=axis + 1, sizes=(1,))
            first = f.Add(length, f.constant([bound]), sizes=(1,))
            parts.append(f.Max(first, f.constant([0]), sizes=(1,)))
        else:
            parts.append(f.constant([0 if is_before else bound]))
    if not changed:
        return None
    return parts[0] if len(parts) == 1 else f.Concat(*parts, axis=0, sizes=(len(parts),))
