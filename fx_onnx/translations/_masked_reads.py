"""Reads of the elements at which a mask is true."""

from __future__ import annotations

from onnx_ir import DataType, Value

from fx_onnx.translation.emitter import Emitter


def gather_mask(op: Emitter, self: Value, axis: int, mask: Value) -> Value:
    """Emits NonZero and Gather, or GatherND for a mask with several axes: the elements of self where the mask is true.

    The axes of self that the mask covers begin at ``axis``. Compress is one node, but several runtimes do not have it.
    """
    places, rank = op.NonZero(op.cast(mask, DataType.BOOL)), op.rank(mask)
    if rank == 1:
        return op.Gather(self, op.Squeeze(places, [0]), axis=axis)
    axes = list(range(op.rank(self)))
    front = [*axes[axis : axis + rank], *axes[:axis], *axes[axis + rank :]]
    gathered = op.GatherND(op.transpose(self, front), op.Transpose(places, perm=[1, 0]))
    return op.transpose(gathered, [*range(1, axis + 1), 0, *range(axis + 1, len(axes) - rank + 1)])
