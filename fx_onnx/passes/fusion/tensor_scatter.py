"""Positions at which a model writes new tokens into a cache of a fixed size, and the fusion of these writes."""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir
from onnx_ir import Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.matchers import commuted_inputs, constant_integers, constant_number, dims, producer_of
from fx_onnx.passes.rules import Result, rule

__all__ = ["Positions", "fuse_tensor_scatter", "match_positions"]


class Positions(NamedTuple):
    """The positions start, start + 1, ..., start + length - 1.

    Attributes:
        start: the first position, an INT64 of shape []; None if it is 0.
        length: the number of positions, an INT64 of shape [].
    """

    start: Value | None
    length: Value


def match_positions(value: Value | None) -> Positions | None:
    """Returns the positions of a value (length,) that is Range(0, length, 1), or the sum of that and a start."""
    plus = producer_of(value, "Add")
    for counted, start in commuted_inputs(plus) if plus is not None else ((value, None),):
        steps = producer_of(counted, "Range")
        if steps is None or (plus is not None and (start is None or dims(start) != ())):
            continue
        first, length, step = steps.inputs
        if length is not None and constant_number(first) == 0 and constant_number(step) == 1:
            return Positions(start, length) if length.dtype == ir.DataType.INT64 else None
    return None


@rule("ScatterElements(cache, index, update, axis=axis, reduction='none')", since=24)
def fuse_tensor_scatter(f: NodeBuilder, cache: Value, index: Value, update: Value, axis: int) -> Result:
    """ScatterElements(cache, start + Range(0, n, 1), x) → TensorScatter(cache, x, start).

    Legal where the index is the same along all other axes, in which x has the sizes of the cache: the write covers
    whole slices. It must not accumulate, and its axis must not be the first one, the batch. ScatterElements takes as
    many indices as updates, so x has n slices.
    """
    sizes, written = dims(cache), dims(update)
    if sizes is None or written is None or len(sizes) != len(written):
        return None
    axis %= len(sizes)
    positions = _positions_along(index, axis, len(sizes))
    if positions is None:
        return None
    if not axis:
        return "it writes along the first axis"
    if any(sizes[other] != written[other] for other in range(len(sizes)) if other != axis):
        return f"the update has other sizes than the cache: {written} and {sizes}"
    starts = []
    if positions.start is not None:
        starts = [f.Expand(positions.start, f.Shape(cache, start=0, end=1), sizes=sizes[:1])]
    return f.TensorScatter(cache, update, *starts, axis=axis)


def _positions_along(index: Value | None, axis: int, rank: int) -> Positions | None:
    """Returns the positions that an index tensor has along the axis; None if they depend on another axis too."""
    expand = producer_of(index, "Expand")
    aligned = producer_of(expand.inputs[0] if expand is not None else index, "Unsqueeze")
    axes = constant_integers(aligned.inputs[1]) if aligned is not None else None
    if aligned is None or axes is None or sorted(each % rank for each in axes) != [x for x in range(rank) if x != axis]:
        return None
    return match_positions(aligned.inputs[0])
