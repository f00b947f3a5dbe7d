"""Finds what both branches of an If compute alike from their results, so that it stands once behind the If."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from fx_onnx.data_branches.equal_values import operator_key, outer_inputs

__all__ = ["shared_tail"]

_Pair = tuple[ir.Value, ir.Value]


def shared_tail(bodies: Sequence[ir.Graph], results: Sequence[_Pair]) -> dict[ir.Node, ir.Node]:
    """Returns the nodes of the first body that can stand behind the If, with their twins in the second, the last first.

    Each reader of such a node is one too, or it is the result. No input is a weight that differs between the bodies: an
    operator of a weight has other forms than one of a value that an If computes.

    Args:
        bodies: the branches.
        results: the pairs of values that they return, of which both may be one value outside of them.
    """
    twins: dict[ir.Node, ir.Node] = {}
    partners: dict[ir.Value, set[ir.Value]] = {}
    counts = Counter[ir.Value]()  # of the reads by nodes behind the If
    for one, other in results:
        _join(partners, one, other)
    for node in reversed(bodies[0]):
        twin = _twin(node, partners)
        if twin is None or twin.graph is not bodies[1] or operator_key(node) != operator_key(twin):
            continue
        outputs = list(zip(node.outputs, twin.outputs, strict=True))
        inputs = list(zip(outer_inputs(node), outer_inputs(twin), strict=True))
        is_whole = all(counts[value] == len(value.uses()) for pair in outputs for value in pair)
        are_twins = all(partners.get(a, {b}) == {b} and partners.get(b, {a}) == {a} for a, b in outputs)
        if not (is_whole and are_twins and all(_may_differ(*pair) for pair in (*inputs, *outputs))):
            continue
        twins[node] = twin
        for a, b in inputs:
            if a is not None and b is not None:
                _join(partners, a, b)
                counts[a] += 1
                counts[b] += a is not b
    return twins


def _join(partners: dict[ir.Value, set[ir.Value]], one: ir.Value, other: ir.Value) -> None:
    partners.setdefault(one, set()).add(other)
    partners.setdefault(other, set()).add(one)


def _twin(node: ir.Node, partners: Mapping[ir.Value, set[ir.Value]]) -> ir.Node | None:
    """Returns the node whose results are read in the other body where those of a node are read; None without one."""
    producers = {other.producer() for value in node.outputs for other in partners.get(value, ())}
    return producers.pop() if len(producers) == 1 else None


def _may_differ(one: ir.Value | None, other: ir.Value | None) -> bool:
    """Returns whether an If can return one of two values for a node behind it."""
    if one is other:
        return True
    if one is None or other is None or one.const_value is not None or other.const_value is not None:
        return False
    are_ranked = one.shape is not None and other.shape is not None and len(one.shape) == len(other.shape)
    return one.dtype == other.dtype and are_ranked
