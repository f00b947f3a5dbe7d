"""Decomposition: calls without a translation → calls with one.

The graph as a whole is never traced again: ``call_decomposer`` replaces each call alone.
"""

from __future__ import annotations

import operator

from torch.fx import Node

from fx_onnx.aten.aten_program import AtenProgram
from fx_onnx.aten.call_decomposer import decompose_calls
from fx_onnx.aten.fx_nodes import is_effect, is_symbolic, meta_arguments
from fx_onnx.core.translation_table import TranslationTable


def decompose(program: AtenProgram, table: TranslationTable) -> AtenProgram:
    """Decomposes every call that ``table`` does not translate; rewrites the graphs in place.

    A call without a decomposition stays if the table has a fallback for it.

    Raises:
        UnsupportedOperatorError: some operators have neither a translation nor a decomposition; the message lists all.
        TranslationError: a decomposition fails, or specializes a symbolic size.
    """
    return decompose_calls(
        program,
        lambda node: needs_decomposition(node, table),
        lambda node: table.fall_back(node.target) is not None,
    )


def needs_decomposition(node: Node, table: TranslationTable) -> bool:
    """Returns whether a node is a call that the table does not translate."""
    if node.op != "call_function" or (node.target not in table and (is_symbolic(node) or is_effect(node))):
        return False
    if node.target is operator.getitem:
        return False
    return table.find(node.target, *meta_arguments(node)) is None
