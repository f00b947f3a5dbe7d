"""Fusion of writes at consecutive positions into TensorScatter."""

from __future__ import annotations

import onnx_ir as ir

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.editor import Editor
from fx_onnx.passes.fusion.cache_positions import Positions, match_positions
from fx_onnx.passes.matchers import attribute, constant_integers, dims, producer_of
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["FuseTensorScatter"]


class FuseTensorScatter(Rewrite):
    """ScatterElements(cache, start + Range(0, n, 1), x) → TensorScatter(cache, x, start).

    Legal where the index is the same along all other axes, in which x has the sizes of the cache: the write covers
    whole slices. It must not accumulate, and its axis must not be the first one, the batch. ScatterElements takes as
    many indices as updates, so x has n slices.
    """

    name = "fuse_tensor_scatter"
    op_types = ("ScatterElements",)
    since = 24

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Replaces one ScatterElements."""
        cache, index, update = node.inputs
        sizes, written = dims(cache), dims(update)
        if cache is None or sizes is None or written is None or len(sizes) != len(written):
            return False
        axis = attribute(node, "axis", 0) % len(sizes)
        positions = _positions_along(index, axis, len(sizes))
        if positions is None:
            return False
        if not axis or attribute(node, "reduction", "none") != "none":
            return self.declines(node, "it accumulates, or writes along the first axis")
        if any(sizes[other] != written[other] for other in range(len(sizes)) if other != axis):
            return self.declines(node, "the update has other sizes than the cache: %s and %s", written, sizes)
        inputs = [cache, update]
        if positions.start is not None:
            f = NodeBuilder(node, editor, ir.DataType.INT64)
            inputs.append(f.Expand(positions.start, f.Shape(cache, start=0, end=1), sizes=sizes[:1]))
        editor.replace(node, "TensorScatter", inputs, {"axis": axis})
        return True


def _positions_along(index: ir.Value | None, axis: int, rank: int) -> Positions | None:
    """Returns the positions that an index tensor has along the axis; None if they depend on another axis too."""
    expand = producer_of(index, "Expand")
    aligned = producer_of(expand.inputs[0] if expand is not None else index, "Unsqueeze")
    axes = constant_integers(aligned.inputs[1]) if aligned is not None else None
    if aligned is None or axes is None or sorted(each % rank for each in axes) != [x for x in range(rank) if x != axis]:
        return None
    return match_positions(aligned.inputs[0])
