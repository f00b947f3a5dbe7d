"""Decomposition: calls without a translation → calls with one.

The graph as a whole is never traced again: ``call_decomposer`` replaces each call alone.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from torch.fx import Node

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.call_decomposer import decompose_calls
from fx_onnx.aten.fx_nodes import fake_mode, fake_results, is_effect, is_symbolic, meta_arguments
from fx_onnx.aten.tracing.guard_check import refuse_guards, undone_guards
from fx_onnx.core.torch_private import OpOverload
from fx_onnx.core.translation_table import Translation, TranslationTable

_SCALARS = {"number", "float", "bool", "Optional[number]", "Optional[float]"}


def decompose(
    program: AtenProgram, table: TranslationTable, own: Mapping[Any, Callable[..., Any]] | None = None
) -> AtenProgram:
    """Decomposes every call that ``table`` does not translate; rewrites the graphs in place.

    A call without a decomposition stays if the table has a fallback for it.

    Args:
        program: the functionalized program.
        table: the translations.
        own: the decompositions of operators that only this program has, by target.

    Raises:
        UnsupportedOperatorError: some operators have neither a translation nor a decomposition; the message lists all.
        TranslationError: a decomposition fails, or specializes a symbolic size.
    """
    return decompose_calls(
        program,
        lambda node: needs_decomposition(node, table),
        lambda node: table.fall_back(node.target) is not None,
        own,
    )


def needs_decomposition(node: Node, table: TranslationTable) -> bool:
    """Returns whether a node is a call that the table does not translate."""
    if node.op != "call_function" or (node.target not in table and (is_symbolic(node) or is_effect(node))):
        return False
    if node.target is operator.getitem:
        return False
    return find_translation(node, table) is None


def find_translation(node: Node, table: TranslationTable) -> Translation | None:
    """Returns the translation that supports a call; None if the call must be decomposed.

    Raises:
        TranslationError: a user's translation decides by the example's value of a dynamic size.
    """
    entry = table.find_for_all(node.target)
    if entry is not None:
        return entry
    entry = table.get(node.target)
    if entry is None or entry.declines is None:
        if not _takes_symbolic_scalar(node):
            return table.find(node.target, *meta_arguments(node))
        with undone_guards(fake_mode(node.graph)) as guards:
            found = table.find(node.target, *meta_arguments(node))
        return None if guards else found
    with refuse_guards(fake_mode(node.graph), node, "translated"):
        return table.find(node.target, *meta_arguments(node), fake_results(node))


def _takes_symbolic_scalar(node: Node) -> bool:
    """Returns whether a number of a call that is no size, such as the order of a norm, is symbolic."""
    if not isinstance(node.target, OpOverload):
        return False
    given = {
        each.name: value for each, value in zip(node.target._schema.arguments, node.args, strict=False)
    } | node.kwargs
    scalars = (each.name for each in node.target._schema.arguments if str(each.type) in _SCALARS)
    return any(isinstance(given.get(name), Node) for name in scalars)
