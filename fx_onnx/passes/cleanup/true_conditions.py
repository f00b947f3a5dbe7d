"""Elimination of conditions that are always true from masks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
from onnx_ir import Value

from fx_onnx.core.size_rules import broadcast_shapes
from fx_onnx.passes.legalization.ranges_and_slices import is_nonnegative
from fx_onnx.passes.matchers import attribute, constant_array, constant_integers, dims, producer_of
from fx_onnx.passes.rules import Result, rule

__all__ = ["eliminate_true_conditions"]

_Sizes = tuple[int | str, ...]

_ELEMENTWISE = frozenset({"Add", "And", "Cast", "Clip", "Mul", "Not", "Or", "Sub", "Where"})
"""The operators between a mask and the scores that it hides."""


@rule("And(condition, mask)", until=22)  # from opset 23 on, the mask goes to an Attention node
def eliminate_true_conditions(node: ir.Node, condition: Value, mask: Value) -> Result:
    """And(x ≥ 0, mask) → mask, where x is not negative; also And(true, mask). An example is the mask of an encoder.

    Legal because And(true, mask) is the mask, broadcast. Applies where what is computed from the mask is added to, or
    multiplied with, a tensor that broadcasts it again.
    """
    if not _is_true(condition):
        return None
    narrow = _narrowed(node.outputs[0], dims(mask))
    if narrow is None:
        return "something may read the broadcast shape of the mask"
    for value, sizes in narrow.items():
        value.shape = ir.Shape(sizes)
    return mask


def _is_true(value: ir.Value | None) -> bool:
    """Returns whether it is a constant, or a comparison x ≥ c of an x that is not negative with c ≤ 0."""
    constant = constant_array(value)
    if constant is not None:
        return constant.dtype == np.bool_ and bool(constant.all())
    node = producer_of(value, "GreaterOrEqual")
    bound = None if node is None else constant_array(node.inputs[1])
    return node is not None and bound is not None and bool((bound <= 0).all()) and is_nonnegative(node.inputs[0])


def _narrowed(mask: ir.Value, sizes: _Sizes | None) -> dict[ir.Value, _Sizes] | None:
    """Returns the values that get another shape if the mask has these sizes; None if a result of the model may differ.

    The consumers are followed until a sum or a product has the same shape as before.
    """
    if sizes is None or dims(mask) is None:
        return None
    found = {mask: sizes} if sizes != dims(mask) else {}
    waiting = list(found)
    while waiting:
        value = waiting.pop()
        if value.is_graph_output():
            return None
        for use in value.uses():
            result = use.node.outputs[0]
            new = _result_sizes(use.node, found)
            if new is None or dims(result) is None:
                return None
            if new != found.get(result, dims(result)):
                found[result] = new
                waiting.append(result)
    return found


def _result_sizes(node: ir.Node, narrow: Mapping[ir.Value, _Sizes]) -> _Sizes | None:
    """Returns the shape of a node's result if values are narrow; None if the result is not only narrower."""
    if node.domain or not (node.op_type in _ELEMENTWISE or node.op_type == "ReduceSum"):
        return None
    known = [narrow.get(value, dims(value)) for value in node.inputs if value is not None]
    if node.op_type in _ELEMENTWISE:
        return None if None in known else broadcast_shapes(*(sizes for sizes in known if sizes is not None))
    old, new = dims(node.inputs[0]), known[0]
    axes = constant_integers(node.inputs[1]) if len(node.inputs) > 1 else None
    if old is None or new is None or len(old) != len(new) or not axes or not attribute(node, "keepdims", 1):
        return None
    places = {axis % len(old) for axis in axes}
    same = all(old[place] == new[place] for place in places)
    return tuple(1 if place in places else size for place, size in enumerate(new)) if same else None
