"""Matching of the positions at which a model writes new tokens into a cache of a fixed size."""

from __future__ import annotations

from typing import NamedTuple

import onnx_ir as ir

from fx_onnx.passes.matchers import commuted_inputs, constant_number, dims, producer_of

__all__ = ["Positions", "match_positions"]


class Positions(NamedTuple):
    """The positions start, start + 1, ..., start + length - 1.

    Attributes:
        start: the first position, an INT64 of shape []; None if it is 0.
        length: the number of positions, an INT64 of shape [].
    """

    start: ir.Value | None
    length: ir.Value


def match_positions(value: ir.Value | None) -> Positions | None:
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
