"""GatherElements as GatherND, for a runtime whose GatherElements is wrong for long axes.

The reference evaluator (measured with onnx 1.23.2) computes it by ``numpy.choose``, which takes few choices. From 32 or
64 elements on, by the version of NumPy, it reads one index of each row of a matrix, so that the result is wrong or
there is none. It also refuses indices that are shorter than the tensor along another axis.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, dims
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["LegalizeGatherElements"]

_FEW = 31
"""The choices that numpy.choose takes in every version."""


class LegalizeGatherElements(Rewrite):
    """GatherElements(x, i, axis) → GatherND(x, c), where c has the coordinates of each element.

    Legal because ONNX defines both by the same coordinates. Short axes stay. The pass belongs to the target reference.
    """

    name = "legalize_gather_elements"
    op_types = ("GatherElements",)

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Rewrites one GatherElements."""
        x, indices = node.inputs
        sizes, found = dims(x), dims(indices)
        if indices is None or sizes is None or found is None or not sizes:
            return self.declines(node, "the rank is unknown")
        axis = attribute(node, "axis", 0) % len(sizes)
        length, others = sizes[axis], [sizes[:axis] + sizes[axis + 1 :], found[:axis] + found[axis + 1 :]]
        if isinstance(length, int) and length <= _FEW and others[0] == others[1]:
            return False
        f = NodeBuilder(node, editor, ir.DataType.INT64)
        shape, last = f.Shape(indices), f.constant([len(sizes)])
        coordinates = []
        for place in range(len(sizes)):
            number = indices
            if place != axis:
                size = f.Squeeze(f.Shape(indices, start=place, end=place + 1), f.constant([0]))
                every = f.Range(f.constant(np.array(0)), size, f.constant(np.array(1)))
                beside = [each for each in range(len(sizes)) if each != place]
                number = f.Expand(f.Unsqueeze(every, f.constant(beside)) if beside else every, shape)
            elif indices.dtype != ir.DataType.INT64:
                number = f.Cast(indices, to=ir.DataType.INT64)
            coordinates.append(f.Unsqueeze(number, last))
        editor.replace(node, "GatherND", [x, f.Concat(*coordinates, axis=len(sizes))], {})
        return True
