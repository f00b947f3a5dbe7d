"""Elimination of computations that do not change their input, whose reader does them too, or that are always true."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx_ir import DataType, Value

from fx_onnx.passes.builder import NodeBuilder
from fx_onnx.passes.legalization.ranges_and_slices import is_nonnegative
from fx_onnx.passes.matchers import attribute, constant_array, constant_integers, dims, producer_of, same_shape
from fx_onnx.passes.rules import Result, rule
from fx_onnx.sizes.size_rules import broadcast_shapes

__all__ = [
    "eliminate_constant_choices",
    "eliminate_expands",
    "eliminate_identities",
    "eliminate_softmax_shifts",
    "eliminate_true_conditions",
    "merge_casts",
]

_Array = npt.NDArray[Any]


@rule(
    "(Identity | Concat | Sum | Max | Min | Mean)(x)",
    "Split(x, ...)",
    "(Mul | Div | Pow | And | Sub | Add | Or | Xor | Tile)(x, const.c)",
    "Pad(x, const.c, ...)",
    "Concat(*parts, axis=axis)",
)
def eliminate_identities(
    f: NodeBuilder,
    node: ir.Node,
    x: Value | None,
    c: _Array | None,
    parts: Sequence[Value] | None,
    axis: int,
) -> Result:
    """f(x) → x, for the operations that return x unchanged.

    - Identity; Concat, Sum, Max, Min, Mean of one input; Split into one part. Concat loses its empty inputs.
    - x * 1, x / 1, x ** 1, x - 0, x and true, x or false, x xor false. For integers also x + 0. For floats only
      x + -0.0, because -0.0 + 0.0 is 0.0.
    - Tile with repeats of 1, Pad of zero width.

    Legal where the result has the dtype and the shape of x.
    """
    if parts is not None:
        kept = [part for part in parts if (sizes := dims(part)) is None or sizes[axis] != 0]
        return f.Concat(*kept, axis=axis) if 0 < len(kept) < len(parts) else None
    result = node.outputs[0]
    if x is None or (c is not None and not (c.size and _NEUTRAL[node.op_type](c))) or len(node.outputs) > 1:
        return None
    if c is None or (x.dtype == result.dtype and same_shape(x, result)):
        return x
    return "the neutral operand changes the shape or the dtype"


def _all_ones(values: _Array) -> bool:
    return bool((values == 1).all())


def _all_zeros(values: _Array) -> bool:
    return bool((values == 0).all())


def _positive_zeros(values: _Array) -> bool:
    return _all_zeros(values) and not np.signbit(values).any()


def _negative_zeros(values: _Array) -> bool:
    """Returns whether x + values is x for all x: -0.0 for floats, 0 for integers."""
    return _all_zeros(values) and (values.dtype.kind in "iu" or bool(np.signbit(values).all()))


_NEUTRAL: dict[str, Callable[[_Array], bool]] = {
    **dict.fromkeys(("Mul", "Div", "Pow", "And", "Tile"), _all_ones),
    **dict.fromkeys(("Or", "Xor", "Pad"), _all_zeros),
    "Sub": _positive_zeros,
    "Add": _negative_zeros,
}


@rule("Where(const.c, x, y)")
def eliminate_constant_choices(node: ir.Node, c: _Array, x: Value, y: Value) -> Result:
    """Where(c, x, y) → x where c is true everywhere, or y where it is false everywhere.

    Legal where the result has the shape of that operand.
    """
    if not c.size or c.any() != c.all():
        return None
    chosen = x if c.all() else y
    return chosen if same_shape(chosen, node.outputs[0]) else "the condition or the other operand changes the shape"


# dtype → (1 if it is signed, bits of the integers that it represents exactly, bits of its exponent).
_RANGE = {
    DataType.BOOL: (0, 1, 0),
    DataType.UINT8: (0, 8, 0),
    DataType.UINT16: (0, 16, 0),
    DataType.UINT32: (0, 32, 0),
    DataType.UINT64: (0, 64, 0),
    DataType.INT8: (1, 7, 0),
    DataType.INT16: (1, 15, 0),
    DataType.INT32: (1, 31, 0),
    DataType.INT64: (1, 63, 0),
    DataType.BFLOAT16: (1, 8, 8),
    DataType.FLOAT: (1, 24, 8),
    DataType.DOUBLE: (1, 53, 11),
    DataType.FLOAT16: (1, 11, 5),
}


@rule("Cast(~Cast(x), to=to)", "Cast(x, to=to)")
def merge_casts(f: NodeBuilder, node: ir.Node, nodes: Sequence[ir.Node], x: Value, to: int) -> Result:
    """Cast(x) to the dtype of x → x; Cast(Cast(x)) → Cast(x), or x if the dtypes are equal.

    Legal where the inner Cast is lossless: every number of its source dtype exists in its target dtype.
    """
    if len(nodes) == 1:
        return x if x.dtype == to else None
    between = nodes[1].outputs[0].dtype
    if x.dtype is None or between is None or between == to:
        return None
    if not _is_lossless(x.dtype, between):
        return f"the first Cast, from {x.dtype} to {between}, loses information"
    return x if x.dtype == to else f.Cast(x, **node.attributes)


def _is_lossless(source: DataType, target: DataType) -> bool:
    """Returns whether ``target`` represents every number of ``source``."""
    if source not in _RANGE or target not in _RANGE:
        return False
    return all(held <= wide for held, wide in zip(_RANGE[source], _RANGE[target], strict=True))


@rule("Softmax(x - ReduceMax(x, integers.axes, keepdims=1), axis=axis)")
def eliminate_softmax_shifts(f: NodeBuilder, x: Value, axes: list[int], axis: int) -> Result:
    """Softmax(x - ReduceMax(x)) → Softmax(x).

    Legal where the maximum is along the axis of Softmax: Softmax subtracts it itself before it computes exponentials.
    """
    rank = len(dims(x) or ())
    if not rank or [other % rank for other in axes] != [axis % rank]:
        return "the shape is not known, or the maximum is along other axes"
    return f.Softmax(x, axis=axis)


_BROADCASTS = """Add | Sub | Mul | Div | Pow | Mod | And | Or | Xor | Equal | Greater | GreaterOrEqual | Less |
    LessOrEqual | Where | MatMul | Max | Min | Sum | PRelu"""


@rule(f"({_BROADCASTS})(..., ~Expand(x, _), ...)")
def eliminate_expands(f: NodeBuilder, node: ir.Node, nodes: Sequence[ir.Node], x: Value) -> Result:
    """f(Expand(x), y) → f(x, y), where f is elementwise with broadcasting, or MatMul.

    Legal where the operands broadcast to the same shape without the Expand. For MatMul only batch axes broadcast; for
    PRelu only the slope does.
    """
    inputs = list(node.inputs)
    shorter = [x if operand is nodes[1].outputs[0] else operand for operand in inputs]
    if not _same_result(node, inputs, shorter):
        return "the result may have another shape without the Expand"
    return f.emit(node.op_type, shorter, node.attributes)[0]


def _same_result(node: ir.Node, inputs: list[ir.Value | None], shorter: list[ir.Value | None]) -> bool:
    skipped = 2 if node.op_type == "MatMul" else 0
    before, after = ([dims(value) for value in values] for values in (inputs, shorter))
    if any(sizes is None or len(sizes) < skipped for sizes in (*before, *after)):
        return False
    if node.op_type == "PRelu" and (after[0] != before[0]):
        return False
    cut = -skipped or None
    if skipped and [x[cut:] for x in before if x] != [x[cut:] for x in after if x]:
        return False
    old = broadcast_shapes(*(x[:cut] for x in before if x is not None))
    return old is not None and old == broadcast_shapes(*(x[:cut] for x in after if x is not None))


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
    narrow = {mask: sizes} if sizes != dims(mask) else {}
    waiting = list(narrow)
    while waiting:
        value = waiting.pop()
        if value.is_graph_output():
            return None
        for use in value.uses():
            result = use.node.outputs[0]
            new = _result_sizes(use.node, narrow)
            if new is None or dims(result) is None:
                return None
            if new != narrow.get(result, dims(result)):
                narrow[result] = new
                waiting.append(result)
    return narrow


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
    same = all(old[axis] == new[axis] for axis in places)
    return tuple(1 if axis in places else size for axis, size in enumerate(new)) if same else None
