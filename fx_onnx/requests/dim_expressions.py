"""Handles names of dims in ``dynamic_axes`` that are not identifiers: any text, or an expression over other names.

torch.onnx accepts any text, and programs use this: ``"batch-size"``, ``"past_sequence_length + sequence_length"``.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import sympy

from fx_onnx.messages.arguments import is_dim_word

__all__ = ["AxisText", "DefinedDim", "dim_expression"]

_MAX_LENGTH = 200
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


class AxisText(str):
    """The name of a dim in ``dynamic_axes``, which may be any text. A name in ``dynamic_shapes`` is an identifier."""

    __slots__ = ()


class DefinedDim(str):
    """The name of a dim whose size is an expression over other names by definition, such as ``past + sequence``.

    A condition that follows from the definition is no finding.
    """

    definition: str

    def __new__(cls, name: str, definition: str = "") -> DefinedDim:  # a copy gets the definition after its creation
        """Creates the name."""
        dim = super().__new__(cls, name)
        dim.definition = definition
        return dim


def dim_expression(text: str, names: Mapping[str, sympy.Expr]) -> sympy.Expr | None:
    """Returns the value of a text such as ``"past + 2 * new"``, which computes with the sizes that ``names`` gives.

    Returns None if the text is no such expression: it is a name alone, or contains a word that is not in ``names``.
    """
    if is_dim_word(text) or len(text) > _MAX_LENGTH:
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None
    return _value(tree, names) if isinstance(tree, ast.BinOp) else None


def _value(node: ast.expr, names: Mapping[str, sympy.Expr]) -> sympy.Expr | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return sympy.Integer(node.value)
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left, names), _value(node.right, names)
        if left is not None and right is not None and not (isinstance(node.op, ast.FloorDiv) and right == 0):
            return sympy.sympify(_OPERATORS[type(node.op)](left, right))
    return None
