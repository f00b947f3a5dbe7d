"""Nodes whose result is their input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import commuted_inputs, constant_array, constant_integers, same_shape
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["EliminateIdentities"]

_Array = npt.NDArray[Any]


class EliminateIdentities(Rewrite):
    """A node that gives one of its inputs → that input.

    - Identity; Concat, Sum, Max, Min, Mean of one input; Split into one part.
    - x * 1, x / 1, x - 0, x ** 1, x and true, x or false, x xor false; x + 0 of integers. Of floats only x + -0.0 is
      x, since -0.0 + 0.0 is 0.0, and only x - 0.0.
    - Expand to the shape it has, Tile by ones, Pad by zeros, Slice of everything with step 1.

    Legal where dtype and shape stay the same.
    """

    name = "eliminate_identities"
    op_types = ("Identity", "Concat", "Sum", "Max", "Min", "Mean", "Split", "Mul", "Div", "Sub", "Add", "Pow", "And",
                "Or", "Xor", "Expand", "Tile", "Pad", "Slice")  # fmt: skip

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Removes one such node."""
        if not node.inputs or node.inputs[0] is None:
            return False
        if node.op_type in _ALONE:
            return len(node.inputs) == 1 and editor.replace_with_value(node, node.inputs[0])
        if node.op_type == "Split":
            return len(node.outputs) == 1 and editor.replace_with_value(node, node.inputs[0])
        if node.op_type in _SAME_SHAPE:
            return (
                same_shape(node.inputs[0], node.outputs[0])
                and _SAME_SHAPE[node.op_type](node)
                and editor.replace_with_value(node, node.inputs[0])
            )
        return _drop_operand(node, editor)


def _drop_operand(node: ir.Node, editor: Editor) -> bool:
    """Removes a binary node one of whose operands changes nothing; only Sub, Div and Pow need it on the right."""
    is_neutral = _NEUTRAL[node.op_type]
    for kept, other in commuted_inputs(node):
        found = constant_array(other)
        if found is not None and found.size and kept is not None and is_neutral(found):
            same = kept.dtype == node.outputs[0].dtype and same_shape(kept, node.outputs[0])
            return same and editor.replace_with_value(node, kept)
        if node.op_type in ("Sub", "Div", "Pow"):
            break
    return False


def _all_ones(values: _Array) -> bool:
    return bool((values == 1).all())


def _all_zeros(values: _Array) -> bool:
    return bool((values == 0).all())


def _positive_zeros(values: _Array) -> bool:
    return _all_zeros(values) and not np.signbit(values).any()


def _negative_zeros(values: _Array) -> bool:
    """What may be added to any number: -0.0, or an integer 0."""
    return _all_zeros(values) and (values.dtype.kind in "iu" or bool(np.signbit(values).all()))


def _unit_steps(node: ir.Node) -> bool:
    return len(node.inputs) < 5 or node.inputs[4] is None or set(constant_integers(node.inputs[4]) or [0]) == {1}


def _no_padding(node: ir.Node) -> bool:
    return set(constant_integers(node.inputs[1]) or [1]) == {0}


def _repeats_once(node: ir.Node) -> bool:
    return set(constant_integers(node.inputs[1]) or [0]) == {1}


_ALONE = ("Identity", "Concat", "Sum", "Max", "Min", "Mean")
_SAME_SHAPE: dict[str, Callable[[ir.Node], bool]] = {
    "Expand": lambda node: True,
    "Tile": _repeats_once,
    "Pad": _no_padding,
    "Slice": _unit_steps,
}
_NEUTRAL: dict[str, Callable[[_Array], bool]] = {
    "Mul": _all_ones,
    "Div": _all_ones,
    "Pow": _all_ones,
    "And": _all_ones,
    "Sub": _positive_zeros,
    "Add": _negative_zeros,
    "Or": _all_zeros,
    "Xor": _all_zeros,
}
