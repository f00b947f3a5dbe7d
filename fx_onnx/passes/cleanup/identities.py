"""Elimination of nodes whose result equals one of their inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from fx_onnx.passes.editor import Editor
from fx_onnx.passes.matchers import attribute, commuted_inputs, constant_array, constant_integers, dims, same_shape
from fx_onnx.passes.rewriter import Rewrite

__all__ = ["EliminateIdentities"]

_Array = npt.NDArray[Any]


class EliminateIdentities(Rewrite):
    """f(x) → x, for the operations that return x unchanged.

    - Identity; Concat, Sum, Max, Min, Mean of one input; Split into one part. Concat loses its empty inputs.
    - x * 1, x / 1, x ** 1, x - 0, x and true, x or false, x xor false. For integers also x + 0. For floats only
      x + -0.0, because -0.0 + 0.0 is 0.0.
    - Expand to the shape of x, Tile with repeats of 1, Pad of zero width, Slice of the whole tensor with step 1.

    Legal where the result has the dtype and the shape of x.
    """

    name = "eliminate_identities"
    op_types = ("Identity", "Concat", "Sum", "Max", "Min", "Mean", "Split", "Mul", "Div", "Sub", "Add", "Pow", "And",
                "Or", "Xor", "Expand", "Tile", "Pad", "Slice")  # fmt: skip

    def rewrite(self, node: ir.Node, editor: Editor) -> bool:
        """Eliminates one node."""
        if not node.inputs or node.inputs[0] is None:
            return False
        if node.op_type == "Concat" and len(kept := _parts(node)) < len(node.inputs):
            editor.replace(node, "Concat", kept, node.attributes)
            return True
        if node.op_type in _OF_ONE_INPUT:
            return len(node.inputs) == 1 and editor.replace_with_value(node, node.inputs[0])
        if node.op_type == "Split":
            return len(node.outputs) == 1 and editor.replace_with_value(node, node.inputs[0])
        if node.op_type in _SAME_SHAPE:
            return (
                same_shape(node.inputs[0], node.outputs[0])
                and _SAME_SHAPE[node.op_type](node)
                and editor.replace_with_value(node, node.inputs[0])
            )
        return self._eliminate_binary(node, editor)

    def _eliminate_binary(self, node: ir.Node, editor: Editor) -> bool:
        """Eliminates a binary node with a neutral operand, which for Sub, Div and Pow must be the second one."""
        is_neutral = _NEUTRAL[node.op_type]
        for kept, other in commuted_inputs(node):
            found = constant_array(other)
            if found is not None and found.size and kept is not None and is_neutral(found):
                if kept.dtype != node.outputs[0].dtype or not same_shape(kept, node.outputs[0]):
                    return self.declines(node, "the neutral operand changes the shape or the dtype")
                return editor.replace_with_value(node, kept)
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
    """Returns whether x + values is x for all x: -0.0 for floats, 0 for integers."""
    return _all_zeros(values) and (values.dtype.kind in "iu" or bool(np.signbit(values).all()))


def _unit_steps(node: ir.Node) -> bool:
    return len(node.inputs) < 5 or node.inputs[4] is None or set(constant_integers(node.inputs[4]) or [0]) == {1}


def _no_padding(node: ir.Node) -> bool:
    return set(constant_integers(node.inputs[1]) or [1]) == {0}


def _repeats_once(node: ir.Node) -> bool:
    return set(constant_integers(node.inputs[1]) or [0]) == {1}


def _parts(node: ir.Node) -> Sequence[ir.Value | None]:
    """Returns the inputs of a Concat without the empty ones, or all inputs if all are empty."""
    axis = attribute(node, "axis")
    kept = [each for each in node.inputs if (sizes := dims(each)) is None or sizes[axis] != 0]
    return kept or node.inputs


_OF_ONE_INPUT = ("Identity", "Concat", "Sum", "Max", "Min", "Mean")
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
