"""Bicubic upsampling of half pixels, for a runtime that reads the wrong pixels.

MNN (measured with 3.6.1) computes a cubic Resize with the coordinates half_pixel wrongly, and one with the coordinates
asymmetric or align_corners rightly.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, dims, initializer_tensor
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeCubicResize"]


class LegalizeCubicResize(Rewrite):
    """Resize(x, n, cubic, half_pixel) → Slice(Resize(Pad(x, 2), 2n, cubic, asymmetric), 3n + 1, -5n, step 2).

    Legal where n is an integer: pixel i reads at (i + 1/2) / n - 1/2, which is where pixel 2i + 1 - n of the other
    Resize reads. Two pixels at each edge are repeated because a cubic kernel reads four. The pass belongs to the
    target mnn.
    """

    name = "legalize_cubic_resize"
    op_types = ("Resize",)
    since = 18

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one Resize of the last two axes."""
        options = {name: value.value for name, value in node.attributes.items()}
        x, scales = node.inputs[0], initializer_tensor(node.inputs[2] if len(node.inputs) > 2 else None)
        half_pixel = options.get("coordinate_transformation_mode", "half_pixel") in ("half_pixel", "pytorch_half_pixel")
        if options.get("mode") != "cubic" or not half_pixel:
            return False
        sizes = dims(x)
        if x is None or sizes is None or len(sizes) != 4 or scales is None or scales.size != 4:
            return self.declines(node, "the scales are computed, or x has not four axes")
        *outer, rows, columns = scales.numpy().tolist()
        if outer != [1, 1] or rows != columns or rows < 2 or rows != int(rows):
            return self.declines(node, "the scales are %s", scales.numpy().tolist())
        if attribute(node, "antialias", 0) or attribute(node, "exclude_outside", 0):
            return self.declines(node, "antialias or exclude_outside is set")
        n, f = int(rows), NodeBuilder(node, editor, x.dtype)
        padded = f.Pad(x, f.constant([0, 0, 2, 2, 0, 0, 2, 2]), mode="edge")
        wide = np.array([1, 1, 2 * n, 2 * n], np.float32)
        options["coordinate_transformation_mode"] = "asymmetric"
        resized = f.Resize(padded, None, f.constant(wide), **options)
        bounds = [[3 * n + 1] * 2, [-5 * n] * 2, [2, 3], [2, 2]]
        editor.replace(node, "Slice", [resized, *map(f.constant, bounds)], {})
        return True
