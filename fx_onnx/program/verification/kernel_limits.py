"""Calls that a kernel of ONNX Runtime refuses because of the sizes of several dims together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import onnx_ir as ir

from fx_onnx.passes.matchers import dims, producer_of

__all__ = ["CacheLimit", "cache_limits"]


class CacheLimit(NamedTuple):
    """The dims of GroupQueryAttention nodes, which are names or sizes, and the calls that the kernel takes.

    With a past, the batch or the number of new tokens is 1. The mask has a column for each token of past and sequence;
    a buffer of the past that is longer than all tokens does not count here, because PyTorch has none.
    """

    batch: int | str
    sequence: int | str
    past: int | str
    total: int | str

    def takes(self, sizes: Mapping[str, int]) -> bool:
        """Returns whether the kernel takes a call with these sizes of named dims."""
        batch, sequence, past, total = (dim if isinstance(dim, int) else sizes.get(dim) for dim in self)
        if batch is None or sequence is None or past is None:
            return True  # nothing is known
        return (batch == 1 or sequence == 1 or past == 0) and total in (None, past + sequence)

    def changes(self) -> tuple[tuple[int | str, int], ...]:
        """Returns the dims that make a call possible, each with its size."""
        return ((self.batch, 1), (self.past, 0), (self.sequence, 1))


def cache_limits(model: ir.Model) -> tuple[CacheLimit, ...]:
    """Returns the limits of the calls of a model, without repetitions."""
    return tuple(dict.fromkeys(_limits(model.graph)))


def _limits(graph: ir.Graph) -> Iterator[CacheLimit]:
    for node in graph:
        if node.op_type != "GroupQueryAttention" or len(node.inputs) < 7:
            continue
        query, past, total = dims(node.inputs[0]), dims(node.inputs[3]), _length(node.inputs[6])
        if query is not None and past is not None and total is not None:
            yield CacheLimit(query[0], query[1], past[2], total)


def _length(total: ir.Value | None) -> int | str | None:
    """Returns the dim that a scalar is computed from: Cast(Squeeze(Shape(mask)))."""
    squeezed = producer_of(getattr(producer_of(total, "Cast"), "inputs", (None,))[0], "Squeeze")
    shape = producer_of(squeezed.inputs[0], "Shape") if squeezed is not None else None
    sizes = dims(shape.inputs[0]) if shape is not None else None
    return None if sizes is None or len(sizes) != 2 else sizes[1]
